#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Which kernels issue tensor-core instructions: small PyTorch programs under Nsight Compute, one row a kernel name.

    tests/gpu/tensor_truth.py --out OUT        # writes OUT/tensor_truth.csv

The counters of the tensor pipe are the truth that the rules over kernel names (libinject/analysis/kernel_rules.h) are held
against: a name that tests/data/kernels/names.csv has otherwise is reported, and the exit status is 1. Without ncu, a GPU, PyTorch or the
permission to read counters it prints a line that starts with SKIP and exits 0.
"""

import argparse
import collections
import csv
import glob
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from gputest import demangle, normalise  # noqa: E402

NAMES = os.path.join(HERE, "..", "data", "kernels", "names.csv")
PROGRAM_SECONDS = 70  # no program is started later than this
NCU_SECONDS = 112


class Skip(Exception):
    pass


# --- the programs, in a process of their own under ncu ---------------------------------------------------------------

def programs(torch):
    """(name, function) pairs, the most important ones first. A function that this PyTorch can't run is left out."""
    device = "cuda"
    fp32, fp16, bf16, fp64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
    functional = torch.nn.functional

    def tf32(on):
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on

    def matrix(rows, columns, dtype, transposed=False):
        if transposed:
            return torch.randn(columns, rows, device=device).to(dtype).t()
        return torch.randn(rows, columns, device=device).to(dtype)

    # Large, narrow, deep (split K), unaligned, a vector.
    shapes = ((1024, 1024, 1024), (2048, 16, 2048), (64, 64, 32768), (1001, 999, 1003), (2048, 1, 2048))

    def gemm(dtype, allow_tf32=False):
        def run():
            tf32(allow_tf32)
            for m, n, k in shapes:
                for a_transposed, b_transposed in ((False, False), (False, True), (True, False)):
                    matrix(m, k, dtype, a_transposed) @ matrix(k, n, dtype, b_transposed)
            torch.bmm(torch.randn(8, 128, 64, device=device).to(dtype), torch.randn(8, 64, 128, device=device).to(dtype))
            functional.linear(matrix(256, 512, dtype), matrix(1024, 512, dtype), matrix(1, 1024, dtype)[0])
        return run

    def gemm_fp8():
        one = torch.ones((), device=device)
        a = matrix(1024, 1024, torch.float8_e4m3fn)
        b = matrix(1024, 1024, torch.float8_e4m3fn, transposed=True)
        torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=bf16)
        torch._scaled_mm(a.to(torch.float8_e5m2), b, scale_a=one, scale_b=one, out_dtype=bf16)

    def gemm_int8():
        a = torch.randint(-8, 8, (1024, 1024), device=device, dtype=torch.int8)
        torch._int_mm(a, a.t().contiguous().t())

    def convolution(dtype, channels_last, allow_tf32=False):
        def run():
            tf32(allow_tf32)
            layout = torch.channels_last if channels_last else torch.contiguous_format
            for channels, filters, size, kernel, groups, stride in ((3, 64, 112, 7, 1, 2), (64, 64, 56, 3, 1, 1),
                                                                     (64, 256, 56, 1, 1, 1), (128, 128, 28, 3, 1, 2),
                                                                     (64, 64, 28, 3, 64, 1), (128, 128, 14, 3, 4, 1)):
                x = torch.randn(8, channels, size, size, device=device).to(dtype).to(memory_format=layout)
                w = torch.randn(filters, channels // groups, kernel, kernel, device=device).to(dtype)
                x.requires_grad_()
                w = w.to(memory_format=layout).requires_grad_()
                functional.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups).sum().backward()
        return run

    def attention(backend, dtype):
        def run():
            from torch.nn.attention import SDPBackend, sdpa_kernel
            tf32(False)
            q, k, v = (torch.randn(2, 8, 256, 64, device=device).to(dtype).requires_grad_() for _ in range(3))
            with sdpa_kernel(getattr(SDPBackend, backend)):
                functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        return run

    def recurrent(kind, dtype, allow_tf32=False, hidden=512):
        def run():
            tf32(allow_tf32)
            layer = getattr(torch.nn, kind)(hidden, hidden, bidirectional=True).to(device).to(dtype)
            layer(torch.randn(6, 32, hidden, device=device).to(dtype).requires_grad_())[0].sum().backward()
        return run

    def rest(dtype):
        def run():
            x = torch.randn(16, 64, 28, 28, device=device).to(dtype).requires_grad_()
            norm = torch.nn.BatchNorm2d(64).to(device)
            functional.max_pool2d(functional.relu(norm(x)), 2).sum().backward()
            y = torch.randn(64, 1024, device=device).to(dtype).requires_grad_()
            y = functional.gelu(torch.nn.LayerNorm(1024).to(device).to(dtype)(y))
            functional.cross_entropy(y, torch.zeros(64, dtype=torch.long, device=device)).backward()
            for options in ({"foreach": True}, {"fused": True}):
                weight = torch.nn.Parameter(torch.randn(256, 256, device=device))
                weight.grad = torch.randn_like(weight)
                torch.optim.AdamW([weight], **options).step()
        return run

    table = [("gemm fp16", gemm(fp16)), ("gemm bf16", gemm(bf16)), ("gemm tf32", gemm(fp32, True)), ("gemm fp32", gemm(fp32)),
             ("gemm fp8", gemm_fp8)]
    for backend in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        table.append((f"attention {backend} bf16", attention(backend, bf16)))
    table.append(("attention EFFICIENT_ATTENTION fp32", attention("EFFICIENT_ATTENTION", fp32)))
    for channels_last in (True, False):
        layout = "channels last" if channels_last else "channels first"
        table += [(f"convolution fp16 {layout}", convolution(fp16, channels_last)),
                  (f"convolution tf32 {layout}", convolution(fp32, channels_last, True)),
                  (f"convolution fp32 {layout}", convolution(fp32, channels_last))]
    table += [("LSTM tf32", recurrent("LSTM", fp32, True)), ("LSTM fp16", recurrent("LSTM", fp16)),
              ("LSTM fp16, small", recurrent("LSTM", fp16, hidden=128)), ("GRU fp32", recurrent("GRU", fp32)),
              ("rest fp32", rest(fp32)), ("rest bf16", rest(bf16)), ("gemm fp64", gemm(fp64)), ("gemm int8", gemm_int8),
              ("attention FLASH_ATTENTION fp16", attention("FLASH_ATTENTION", fp16))]
    return table


def run_programs():
    import torch
    begin = time.monotonic()
    torch.manual_seed(0)
    torch.randn(1, device="cuda").sum().item()  # kernels of the context and the random state are attributed to no program
    torch.cuda.profiler.start()
    for name, function in programs(torch):
        if time.monotonic() - begin > PROGRAM_SECONDS:
            print(f"left out for time: {name}", flush=True)
            continue
        try:
            function()
            torch.cuda.synchronize()
        except Exception as error:  # pylint: disable=broad-except
            print(f"left out: {name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


# --- Nsight Compute --------------------------------------------------------------------------------------------------

def find_ncu(path):
    if path:
        return path
    found = shutil.which("ncu")
    if found:
        return found
    for pattern in ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"):
        for candidate in sorted(glob.glob(pattern), reverse=True):
            if os.access(candidate, os.X_OK):
                return candidate
    raise Skip("ncu (Nsight Compute) is not installed")


NO_MATRIX = "_op_hmma_type_hfma2"


def tensor_metrics(text):
    """The counters of tensor instructions among those that `ncu --query-metrics` lists; their names differ by architecture:
    sm__inst_executed_pipe_tensor, …_tensor_op_hmma, …_tensor_op_gmma, …_fp64_op_dmma, and on the newest only cycles."""
    names = sorted(set(re.findall(r"^\s*(sm__\w+)", text, re.MULTILINE)))
    counters = [n for n in names if re.fullmatch(r"sm__inst_executed_pipe_(?:\w*tensor\w*|\w+_op_\w*mma\w*)", n)]
    cycles = [n for n in names if re.fullmatch(r"sm__pipe_tensor(?:_op_\w+|_subpipe_\w+)?_cycles_active", n)]
    # Only counters of matrix instructions, if there are any: on Hopper the pipe's own count, and its cycles, are not 0 for kernels that add
    # and copy (seen on an H200). Sparse and per-type variants would need further passes for each kernel. Exception: …_op_hmma_type_hfma2
    # counts two fp16 products in a register, with which compilers also load constants; it is not a matrix instruction, so parse_raw()
    # subtracts it from …_op_hmma.
    instructions = [n for n in counters if "mma" in n and "sparsity" not in n and ("_type_" not in n or n.endswith(NO_MATRIX))]
    return instructions[:8] or [n for n in counters if "sparsity" not in n][:8] or cycles[:4]


def parse_raw(text, metrics):
    """{mangled kernel name: [launches, the counters' sum]} from `ncu --csv --page raw`: a header, a line of units, one line per launch."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = csv.DictReader(io.StringIO("\n".join(lines)))
    kernels = collections.OrderedDict()
    columns = [f"{metric}.sum" for metric in metrics]
    for row in rows:
        name = row.get("Kernel Name")
        if not name or not (row.get("ID") or "").strip().isdigit():
            continue  # the units
        total = 0.0
        for column in columns:
            value = (row.get(column) or "").replace(",", "").strip()
            try:
                total += -float(value) if column.endswith(f"{NO_MATRIX}.sum") else float(value)
            except ValueError:
                raise ValueError(f"{column} of {name}: {value!r}") from None
        entry = kernels.setdefault(name, [0, 0.0])
        entry[0] += 1
        entry[1] += total
    return kernels


def why_not(output):
    """The reason why ncu can't count, or an empty text."""
    if "ERR_NVGPUCTRPERM" in output:
        return "no permission to read the GPU's counters (ERR_NVGPUCTRPERM)"
    for line in output.splitlines():
        if line.startswith("==ERROR=="):
            return line[len("==ERROR=="):].strip()
    return None


def run_limited(command, seconds):
    """(exit status, output); the whole process group is killed at the time limit, and the status is then None."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output


def collect(options):
    begin = time.monotonic()
    ncu = find_ncu(options.ncu)
    status, output = run_limited([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], 60)
    if status != 0:
        raise Skip("PyTorch with a GPU is needed")
    status, output = run_limited([ncu, "--query-metrics"], 40)
    metrics = tensor_metrics(output)
    if status != 0 or not metrics:
        raise Skip(why_not(output) or "ncu lists no counter of the tensor pipe")
    print("metrics:", ", ".join(metrics))
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "ncu.csv")
        command = [ncu, "--csv", "--page", "raw", "--log-file", log, "--profile-from-start", "off", "--replay-mode", "kernel",
                   "--cache-control", "none", "--clock-control", "none", "--print-units", "base", "--print-kernel-base", "mangled",
                   "--target-processes", "application-only", "--metrics", ",".join(f"{m}.sum" for m in metrics),
                   sys.executable, os.path.abspath(__file__), "--programs"]
        status, output = run_limited(command, max(10.0, NCU_SECONDS - (time.monotonic() - begin)))
        print(output, end="")
        text = ""
        if os.path.exists(log):
            with open(log, errors="replace") as file:
                text = file.read()
    problem = why_not(text) or why_not(output)
    kernels = parse_raw(text, metrics)
    if not kernels:
        raise Skip(problem or ("ncu did not end in time" if status is None else f"ncu gave no kernels (status {status})"))
    return kernels


def contradictions(kernels, known):
    """Contradictions to names.csv: [(name, its entry, what was counted)]."""
    found = []
    for name, (_, instructions) in kernels.items():
        said = known.get(normalise(name))
        counted = "yes" if instructions > 0 else "no"
        if said in ("yes", "no") and said != counted:
            found.append((demangle(name), said, counted))
    return found


def known_names():
    with open(NAMES, newline="") as file:
        return {normalise(row["Name"]): row["Tensor Cores"] for row in csv.DictReader(file)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=".", help="folder for tensor_truth.csv")
    parser.add_argument("--ncu", help="Nsight Compute's program (default: searched)")
    parser.add_argument("--programs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.programs:
        run_programs()
        return 0
    try:
        kernels = collect(options)
    except Skip as reason:
        print(f"SKIP tensor_truth: {reason}")
        return 0
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, "tensor_truth.csv")
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["Tensor Cores", "Tensor Instructions", "Launches", "Name"])
        for name, (launches, instructions) in sorted(kernels.items(), key=lambda item: demangle(item[0])):
            writer.writerow(["yes" if instructions > 0 else "no", int(instructions), launches, demangle(name)])
    used = sum(1 for _, instructions in kernels.values() if instructions > 0)
    print(f"{path}: {len(kernels)} kernels, {used} with tensor instructions")
    wrong = contradictions(kernels, known_names())
    for name, said, counted in wrong:
        print(f"FAIL names.csv says {said}, counted {counted}: {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
