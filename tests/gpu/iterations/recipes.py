# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""More programs, run by programs.py as well: trainers, libraries and less common training loops.

Models have random weights and data is generated: nothing is downloaded.
"""

import os
import random
import sys
import tempfile
import time

from programs import gpt, host_batches, image_batches, language_loss, perceptron, program, token_batches, two_ranks


def on_device(training, batch):
    return [tensor.to(training.device, non_blocking=True) for tensor in batch]


# --- trainers --------------------------------------------------------------------------------------------------------

def offline_transformers():
    # With several GPUs, a Trainer in a single process would use all of them.
    one = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", CUDA_VISIBLE_DEVICES=one)
    import transformers
    transformers.logging.set_verbosity_error()
    return transformers


def gpt2(transformers):
    """A small one."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=2048, n_positions=64, n_embd=256, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0))


def hugging_face(training, accumulate, **arguments):
    """transformers.Trainer: its DataLoader copies a batch to the device as it is fetched, so the marks come before that, ahead of
    on_step_begin."""
    import torch
    transformers = offline_transformers()
    from transformers.trainer_callback import PrinterCallback

    class Trainer(transformers.Trainer):
        def get_batch_samples(self, *args, **named):
            training.mark(f"truth:{self.state.global_step}")
            return super().get_batch_samples(*args, **named)

        def evaluate(self, *args, **named):
            training.phase("validation")
            return super().evaluate(*args, **named)

    class Marks(transformers.TrainerCallback):
        def on_step_end(self, *args, **named):
            time.sleep(training.pause)

        def on_train_end(self, *args, **named):
            training.mark("truth:end")

    def sequences(count):
        return [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(0, 2048, (count, 64))]

    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            output_dir=folder, max_steps=training.steps, per_device_train_batch_size=8, per_device_eval_batch_size=8,
            gradient_accumulation_steps=accumulate, learning_rate=3e-4, bf16=True, use_cpu=training.device == "cpu",
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, **arguments)
        trainer = Trainer(model=gpt2(transformers), args=options, train_dataset=sequences(training.steps * accumulate * 8),
                          eval_dataset=sequences(48), callbacks=[Marks()])
        trainer.remove_callback(PrinterCallback)
        training.losses.append(trainer.train().training_loss)


@program("torch", "transformers", "accelerate")
def hf_trainer(training):
    """transformers.Trainer, bf16, four micro-batches per optimizer step."""
    hugging_face(training, 4)


@program("torch", "transformers", "accelerate")
def hf_trainer_eval(training):
    """transformers.Trainer, bf16, evaluation after every 20 steps."""
    hugging_face(training, 1, eval_strategy="steps", eval_steps=20)


@program("torch", "lightning")
def lightning(training):
    """Lightning runs forward and backward in the closure of optimizer.step(); epochs of 25 steps. It copies a batch to the device before
    on_train_batch_start, so the marks are in the hook before that."""
    import logging
    import warnings

    import lightning as L
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 8 * 8, 10))

        def training_step(self, batch, index):
            x, y = batch
            return F.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def on_before_batch_transfer(self, batch, index):
            training.mark(f"truth:{self.global_step}")
            return batch

        def on_train_batch_end(self, outputs, batch, index):
            if self.global_step % 10 == 0:
                training.losses.append(outputs["loss"].item())
            time.sleep(training.pause)

        def on_train_end(self):
            training.mark("truth:end")

    data = TensorDataset(torch.randn(25 * 64, 3, 32, 32), torch.randint(0, 10, (25 * 64,)))
    trainer = L.Trainer(max_steps=training.steps, accelerator="gpu" if training.device == "cuda" else "cpu", devices=1, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), DataLoader(data, batch_size=64, shuffle=True))


def accelerated(training, model, loss_of, accumulate):
    """A loop with accelerate, bf16; an iteration is one step that the optimizer really makes."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    accelerator = Accelerator(gradient_accumulation_steps=accumulate, mixed_precision="bf16", cpu=training.device == "cpu")
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 20))
    loader = DataLoader(torch.randint(0, 2048, (training.steps * accumulate * 8, 64)), batch_size=8, shuffle=True)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    batches = iter(loader)

    def step(k):
        for _ in range(accumulate):
            tokens = next(batches)
            with accelerator.accumulate(model):
                loss = loss_of(model, tokens)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        return loss

    training.loop(step)


@program("torch", "transformers", "peft", "accelerate")
def lora(training):
    """Low-rank adapters of a frozen GPT-2, accelerate, two micro-batches per optimizer step."""
    model = gpt2(offline_transformers())
    import peft
    config = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    accelerated(training, peft.get_peft_model(model, config), lambda model, tokens: model(input_ids=tokens, labels=tokens).loss, 2)


@program("torch", "accelerate")
def accelerate_plain(training):
    """accelerate without accumulation."""
    accelerated(training, gpt(layers=3, width=256, heads=4, vocabulary=2048, length=64),
                lambda model, tokens: language_loss(model(tokens[:, :-1]), tokens[:, 1:]), 1)


# --- models ----------------------------------------------------------------------------------------------------------

@program("torch")
def experts(training):
    """Two layers that send each token to two of eight experts: the number per expert is only known on the device, is read there, and
    differs from step to step."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Experts(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, 8, bias=False)
            self.experts = nn.ModuleList(perceptron([width, 2 * width, width], nn.GELU) for _ in range(8))

        def forward(self, x):
            y = self.norm(x)
            weights, chosen = self.router(y).softmax(-1).topk(2, dim=-1)
            out = x
            for number, expert in enumerate(self.experts):
                token, place = torch.where(chosen == number)
                if len(token):
                    out = out.index_add(0, token, expert(y[token]) * weights[token, place, None])
            return out

    model = nn.Sequential(nn.Linear(64, 256), Experts(256), Experts(256), nn.Linear(256, 10)).to(training.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = host_batches(training, lambda i: (torch.randn(512, 64), torch.randint(0, 10, (512,))), pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def speech_ctc(training):
    """Convolution, a bidirectional LSTM over packed sequences and CTC; the lengths differ in each step."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
    draw = random.Random(3)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Sequential(nn.Conv1d(80, 128, 5, stride=2, padding=2), nn.ReLU())
            self.lstm, self.head = nn.LSTM(128, 128, num_layers=2, bidirectional=True), nn.Linear(256, 30)

        def forward(self, sound, lengths):
            x = pack_padded_sequence(self.front(sound).permute(2, 0, 1), lengths)
            return self.head(pad_packed_sequence(self.lstm(x)[0])[0]).log_softmax(-1)

    def make(i):
        # The longest one first, as required for packing.
        frames = sorted((draw.randint(60, 300) for _ in range(16)), reverse=True)
        letters = [n // 12 for n in frames]
        return torch.randn(16, 80, frames[0]), torch.tensor(frames), torch.randint(1, 30, (16, letters[0])), torch.tensor(letters)

    model = Model().to(training.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = host_batches(training, make, count=training.steps)

    def step(k):
        sound, frames, text, letters = batch(k)
        lengths = (frames + 1) // 2  # after the convolution
        loss = F.ctc_loss(model(sound.to(training.device), lengths), text.to(training.device), lengths, letters, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def lstm_lm(training):
    """A language model with an LSTM whose state continues from step to step, with truncated gradients; SGD, clipped gradients."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.drop = nn.Embedding(2048, 256), nn.Dropout(0.2)
            self.lstm, self.head = nn.LSTM(256, 256, num_layers=2, dropout=0.2), nn.Linear(256, 2048)

        def forward(self, tokens, state):
            x, state = self.lstm(self.drop(self.token(tokens)), state)
            return self.head(self.drop(x)), state

    model = Model().to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    text = torch.randint(0, 2048, (training.steps * 35 + 1, 20))
    state = None

    def step(k):
        nonlocal state
        x, y = on_device(training, (text[35 * k:35 * (k + 1)], text[35 * k + 1:35 * (k + 1) + 1]))
        if state:
            state = tuple(part.detach() for part in state)
        optimizer.zero_grad()
        logits, state = model(x, state)
        loss = language_loss(logits, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return loss

    training.loop(step)


@program("torch", "torch_geometric")
def gnn(training):
    """Graph convolution and attention over batches of random graphs, whose sizes differ in each step."""
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, GCNConv, global_mean_pool
    draw = random.Random(4)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(32, 128), GATConv(128, 32, heads=4)
            self.third, self.head = GCNConv(128, 128), torch.nn.Linear(128, 10)

        def forward(self, graphs):
            x = self.first(graphs.x, graphs.edge_index).relu()
            x = F.elu(self.second(x, graphs.edge_index))
            x = self.third(x, graphs.edge_index).relu()
            return self.head(global_mean_pool(x, graphs.batch, graphs.num_graphs))

    def graph():
        nodes = draw.randint(20, 80)
        return Data(x=torch.randn(nodes, 32), edge_index=torch.randint(0, nodes, (2, 4 * nodes)), y=torch.randint(0, 10, (1,)))

    model = Model().to(training.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = [Batch.from_data_list([graph() for _ in range(16)]) for _ in range(training.steps)]

    def step(k):
        graphs = batches[k].to(training.device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(graphs), graphs.y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)


@program("torch", "torchvision", "timm")
def timm_lamb(training):
    """timm's vision transformer with its LAMB, clipped gradients and a moving average of the weights."""
    import timm
    import torch.nn.functional as F
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3, dispatch_clip_grad
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=64, num_classes=10).to(training.device)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.02)
    average = ModelEmaV3(model, decay=0.99)
    batch = image_batches(training, 32, 64, 10, pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, step=k)
        return loss

    training.loop(step)


@program("torch")
def diffusion(training):
    """A denoising network with a moving average of its weights, with which ten denoising steps generate pictures after every 25 steps."""
    import copy

    import torch
    import torch.nn.functional as F
    from torch import nn

    class Part(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)
            self.norm1, self.norm2 = nn.GroupNorm(8, after), nn.GroupNorm(8, after)
            self.time, self.skip = nn.Linear(128, after), nn.Conv2d(before, after, 1)

        def forward(self, x, time):
            y = F.silu(self.norm1(self.conv1(x))) + self.time(time)[:, :, None, None]
            return F.silu(self.norm2(self.conv2(y))) + self.skip(x)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = perceptron([64, 128, 128], nn.SiLU)
            self.down1, self.down2, self.middle = Part(3, 32), Part(32, 64), Part(64, 64)
            self.up2, self.up1, self.out = Part(128, 32), Part(64, 32), nn.Conv2d(32, 3, 1)

        def forward(self, x, t):
            angle = t[:, None] * torch.exp(torch.arange(32, device=t.device) * -0.3)
            time = self.time(torch.cat((angle.sin(), angle.cos()), 1))
            a = self.down1(x, time)
            b = self.down2(F.avg_pool2d(a, 2), time)
            c = self.middle(F.avg_pool2d(b, 2), time)
            d = self.up2(torch.cat((F.interpolate(c, scale_factor=2), b), 1), time)
            return self.out(self.up1(torch.cat((F.interpolate(d, scale_factor=2), a), 1), time))

    model = UNet().to(training.device)
    average = copy.deepcopy(model).requires_grad_(False)
    ours, theirs = list(model.parameters()), list(average.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
    beta = torch.linspace(1e-4, 0.02, 1000, device=training.device)
    kept = (1 - beta).cumprod(0)
    batch = host_batches(training, lambda i: (torch.randn(32, 3, 32, 32),), pinned=True)

    def step(k):
        image, = on_device(training, batch(k))
        t = torch.randint(0, 1000, (len(image),), device=training.device)
        noise, share = torch.randn_like(image), kept[t][:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * image + (1 - share).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(theirs, ours, 0.01)
        return loss

    def between(k):
        if (k + 1) % 25 == 0:
            training.phase("sampling")
            with torch.no_grad():
                image = torch.randn(16, 3, 32, 32, device=training.device)
                for at in range(999, 0, -100):
                    noise = average(image, torch.full((16,), at, device=training.device))
                    clean = ((image - (1 - kept[at]).sqrt() * noise) / kept[at].sqrt()).clamp(-3, 3)
                    before = kept[max(at - 100, 0)]
                    image = before.sqrt() * clean + (1 - before).sqrt() * noise
            training.notes["spread"] = round(image.std().item(), 3)

    training.loop(step, between=between)


# --- training loops --------------------------------------------------------------------------------------------------

@program("torch")
def gan_two_one(training):
    """Two steps of the discriminator and one of the generator make an iteration; both networks have the same layers except for the last."""
    import torch
    import torch.nn.functional as F
    generator, discriminator = (perceptron([128, 512, 512, size]).to(training.device) for size in (128, 1))
    generator_optimizer, discriminator_optimizer = (
        torch.optim.Adam(network.parameters(), lr=2e-4, betas=(0.5, 0.999)) for network in (generator, discriminator))
    batch = host_batches(training, lambda i: (torch.randn(64, 128),))

    def made():
        return generator(torch.randn(64, 128, device=training.device))

    def step(k):
        for turn in range(2):
            real, = on_device(training, batch(2 * k + turn))
            with torch.no_grad():
                fake = made()
            loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()
            discriminator_optimizer.zero_grad()
            loss.backward()
            discriminator_optimizer.step()
        loss = F.softplus(-discriminator(made())).mean()
        generator_optimizer.zero_grad()
        loss.backward()
        generator_optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def wgan_gp(training):
    """Five steps of the critic, whose gradient is penalised by a second backward pass, and one of the generator."""
    import torch
    generator = perceptron([64, 256, 256, 128]).to(training.device)
    critic = perceptron([128, 256, 256, 1], torch.nn.Tanh).to(training.device)
    generator_optimizer, critic_optimizer = (
        torch.optim.Adam(network.parameters(), lr=1e-4, betas=(0.0, 0.9)) for network in (generator, critic))
    batch = host_batches(training, lambda i: (torch.randn(64, 128),), pinned=True)

    def made():
        return generator(torch.randn(64, 64, device=training.device))

    def penalty(real, fake):
        mixed = torch.lerp(real, fake, torch.rand(64, 1, device=training.device)).requires_grad_()
        gradient, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        return ((gradient.norm(2, dim=1) - 1) ** 2).mean()

    def step(k):
        for turn in range(5):
            real, = on_device(training, batch(5 * k + turn))
            fake = made().detach()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()
        generator_optimizer.zero_grad()
        (-critic(made()).mean()).backward()
        generator_optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def lbfgs(training):
    """L-BFGS with a line search: a step evaluates its closure about 20 to 25 times, and reads the results; a new batch each step."""
    import torch
    import torch.nn.functional as F
    model = perceptron([32, 128, 1], torch.nn.Tanh).to(training.device)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1, max_iter=20, history_size=10, line_search_fn="strong_wolfe")

    def make(i):
        x = torch.randn(256, 32)
        return x, x[:, :4].sin().sum(1, keepdim=True) + 0.1 * torch.randn(256, 1)

    batch = host_batches(training, make)
    evaluations = []

    def step(k):
        x, y = on_device(training, batch(k))
        evaluations.append(0)

        def closure():
            evaluations[-1] += 1
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    training.loop(step)
    training.notes["evaluations"] = [min(evaluations), max(evaluations)]


@program("torch")
def dqn(training):
    """Acts three to six times, with each action read by the host, then learns once, and updates the target network slightly."""
    import torch
    import torch.nn.functional as F
    draw = random.Random(5)
    network, target = (perceptron([8, 256, 256, 4]).to(training.device) for _ in range(2))
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    states, actions, rewards = torch.randn(1000, 8), torch.randint(0, 4, (1000,)), torch.randn(1000)
    at = 0

    def step(k):
        nonlocal at
        for _ in range(draw.randint(3, 6)):
            with torch.no_grad():
                action = network(states[at].to(training.device)[None]).argmax(1).item()
            actions[at], rewards[at] = action, states[at, action]
            states[(at + 1) % 1000] = 0.9 * states[at] + 0.1 * torch.randn(8)
            at = (at + 1) % 1000
        chosen = torch.randint(0, 999, (64,))
        state, action, reward, after = on_device(training, (states[chosen], actions[chosen], rewards[chosen], states[chosen + 1]))
        with torch.no_grad():
            wanted = reward + 0.9 * target(after).max(1).values
        loss = F.smooth_l1_loss(network(state).gather(1, action[:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for theirs, ours in zip(target.parameters(), network.parameters()):
                theirs.lerp_(ours, 0.01)
        return loss

    training.loop(step)


@program("torch")
def scaler_skips(training):
    """fp16; the gradients overflow in every 17th step, whose optimizer step is skipped."""
    import torch
    import torch.nn.functional as F
    from torch import nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 8 * 8, 10)).to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(training.device, init_scale=1024.0)
    batch = image_batches(training, 64, 32, 10, pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        optimizer.zero_grad()
        with torch.autocast(training.device, dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        # A Python number, so the kernels are the same whether it overflows or not.
        scaler.scale(loss * (float("inf") if k % 17 == 9 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    training.loop(step)
    training.notes["skipped"] = list(range(9, training.steps, 17))


@program("torch")
def per_parameter(training):
    """Each parameter has an optimizer, which steps in the backward pass as soon as the gradient is ready."""
    import torch
    model = gpt(layers=2, width=256, heads=4, vocabulary=2048, length=64).to(training.device)
    optimizers = {parameter: torch.optim.AdamW([parameter], lr=3e-4) for parameter in model.parameters()}
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)

    def step(k):
        x, y = on_device(training, batch(k))
        loss = language_loss(model(x), y)
        loss.backward()
        return loss

    training.loop(step)


@program("torch")
def compiled(training):
    """torch.compile as in `compile`, with an optimizer that is one kernel."""
    import torch
    model = torch.compile(gpt(layers=2, width=256, heads=4, vocabulary=2048, length=64).to(training.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        optimizer.zero_grad()
        loss = language_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def two_optimizers(training):
    """SGD for the embeddings in every step, AdamW for the rest in every third one. An iteration is one pass of the loop, but the repeating
    cycle has three passes."""
    import torch
    model = gpt(layers=3, width=256, heads=4, vocabulary=2048, length=64).to(training.device)
    embeddings = [*model.token.parameters(), *model.position.parameters()]
    rest = [parameter for parameter in model.parameters() if not any(parameter is other for other in embeddings)]
    often, seldom = torch.optim.SGD(embeddings, lr=0.1), torch.optim.AdamW(rest, lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        loss = language_loss(model(x), y)
        loss.backward()
        often.step()
        often.zero_grad()
        if k % 3 == 2:
            seldom.step()
            seldom.zero_grad()
        return loss

    training.notes["repeats"] = "three passes of the loop"
    training.loop(step)


# --- two GPUs --------------------------------------------------------------------------------------------------------

def join(training, rank, store):
    """This rank of two takes the GPU with its number."""
    import datetime

    import torch
    import torch.distributed as dist
    arguments = {}
    if training.device == "cuda":
        if torch.cuda.device_count() < 2:
            sys.exit("needs two GPUs")
        torch.cuda.set_device(rank)
        arguments["device_id"] = torch.device("cuda", rank)
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("nccl" if training.device == "cuda" else "gloo", init_method="file://" + store, rank=rank, world_size=2,
                            timeout=datetime.timedelta(seconds=60), **arguments)
    return dist


@program("torch", gpus=2)
def fsdp2(training):
    """Rank 0 of two whose parameters are sharded block by block, bf16."""
    two_ranks(training, "fsdp2", lambda rank, store: fsdp2_rank(training, rank, store))


def fsdp2_rank(training, rank, store):
    dist = join(training, rank, store)
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    model = gpt(layers=4, width=512, heads=8, vocabulary=4096, length=128).to(training.device)
    for block in model.blocks:
        fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = token_batches(training, 4096, lambda i: (8, 128), pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        loss = language_loss(model(x).float(), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)
    dist.destroy_process_group()


@program("torch", gpus=2)
def ddp_no_sync(training):
    """Rank 0 of two data-parallel ranks, which reduce the gradients with the last of four micro-batches."""
    two_ranks(training, "ddp_no_sync", lambda rank, store: ddp_no_sync_rank(training, rank, store))


def ddp_no_sync_rank(training, rank, store):
    import contextlib
    dist = join(training, rank, store)
    import torch
    model = torch.nn.parallel.DistributedDataParallel(gpt(layers=4, width=256, heads=4, vocabulary=2048, length=64).to(training.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def step(k):
        for micro in range(4):
            x, y = on_device(training, batch(4 * k + micro))
            with model.no_sync() if micro < 3 else contextlib.nullcontext():
                loss = language_loss(model(x), y) / 4
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)
    dist.destroy_process_group()


@program("torch", gpus=2)
def pipeline(training):
    """The first of two stages: four micro-batches forward, then backward; each stage has its own AdamW."""
    two_ranks(training, "pipeline", lambda rank, store: pipeline_rank(training, rank, store))


def pipeline_rank(training, rank, store):
    dist = join(training, rank, store)
    import torch
    import torch.nn.functional as F
    whole = perceptron([512] + [1024] * 6 + [10])
    stage = (whole[:6] if rank == 0 else whole[6:]).to(training.device)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=3e-4)
    batch = host_batches(training, lambda i: (torch.randn(128, 512), torch.randint(0, 10, (128,))), pinned=True)

    def first(k):
        outs = []
        for micro in range(4):
            x, _ = batch(4 * k + micro)
            outs.append(stage(x.to(training.device, non_blocking=True)))
            dist.send(outs[-1].detach(), 1)
        for out in outs:
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)

    def second(k, total):
        ins, losses = [], []
        for micro in range(4):
            ins.append(torch.empty(128, 1024, device=training.device))
            dist.recv(ins[-1], 0)
            _, y = batch(4 * k + micro)
            losses.append(F.cross_entropy(stage(ins[-1].requires_grad_()), y.to(training.device, non_blocking=True)) / 4)
        for x, loss in zip(ins, losses):
            loss.backward()
            dist.send(x.grad, 0)
            total += loss.detach()

    def step(k):
        optimizer.zero_grad()
        total = torch.zeros((), device=training.device)
        if rank == 0:
            first(k)
        else:
            second(k, total)
        optimizer.step()
        dist.broadcast(total, 1)
        return total

    training.loop(step)
    dist.destroy_process_group()


@program("torch", gpus=2)
def zero(training):
    """Rank 0 of two data-parallel ranks, each of which holds the optimizer's state for half of the parameters."""
    two_ranks(training, "zero", lambda rank, store: zero_rank(training, rank, store))


def zero_rank(training, rank, store):
    dist = join(training, rank, store)
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = torch.nn.parallel.DistributedDataParallel(gpt(layers=4, width=256, heads=4, vocabulary=2048, length=64).to(training.device))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def step(k):
        x, y = on_device(training, batch(k))
        optimizer.zero_grad()
        loss = language_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)
    dist.destroy_process_group()


# --- others ----------------------------------------------------------------------------------------------------------

@program("jax", "flax", "optax")
def flax(training):
    """A convolution network of Flax with optax's AdamW, compiled as one step; the loss is read in every step."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy
    import optax
    from flax.training.train_state import TrainState
    if training.device == "cuda" and jax.default_backend() != "gpu":
        sys.exit(f"JAX runs on {jax.default_backend()}, not on a GPU")

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for features in (32, 64):
                x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), strides=(2, 2))
            x = nn.relu(nn.Dense(128)(x.reshape((len(x), -1))))
            return nn.Dense(10)(x)

    generator = numpy.random.default_rng(0)
    batches = [(generator.standard_normal((64, 32, 32, 3), dtype=numpy.float32), generator.integers(0, 10, 64)) for _ in range(8)]
    model = Model()
    state = TrainState.create(apply_fn=model.apply, params=model.init(jax.random.key(0), jnp.ones((1, 32, 32, 3)))["params"],
                              tx=optax.adamw(1e-3))

    @jax.jit
    def train(state, x, y):
        def loss_of(params):
            return optax.softmax_cross_entropy_with_integer_labels(state.apply_fn({"params": params}, x), y).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    def step(k):
        nonlocal state
        state, loss = train(state, *(jax.device_put(array) for array in batches[k % 8]))
        return loss

    training.loop(step, every=1)
    jax.block_until_ready(state.params)
