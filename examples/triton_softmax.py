# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A classifier in PyTorch whose softmax is a Triton kernel; the profiler API brackets iterations 100 to 119."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=mask)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](out, x, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, gradient):
        (out,) = ctx.saved_tensors
        return out * (gradient - (gradient * out).sum(1, keepdim=True))


torch.manual_seed(0)
x = torch.randn(8192, 256, device="cuda")
labels = (x @ torch.randn(256, 1000, device="cuda")).argmax(1)
model = torch.nn.Linear(256, 1000).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for iteration in range(200):
    if iteration == 100:
        torch.cuda.profiler.start()
    if iteration == 120:
        torch.cuda.profiler.stop()
    loss = torch.nn.functional.nll_loss(torch.log(Softmax.apply(model(x).contiguous()) + 1e-9), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
print(f"loss {loss.item():.3f} after 200 iterations")
