"""
A text recogniser, repaired: it reads a strip of glyphs column by column. Between its blocks run four residual streams,
mixed by matrices that Sinkhorn's iteration makes doubly stochastic (mHC, manifold-constrained hyper-connections).

The same data and the same model as ../broken/trainer.py, without its faults.

$ python trainer.py                                   # trains for a while, writes checkpoints/
$ audit run trainer:step --steps 50                   # has nothing to say
$ audit checkpoint checkpoints                        # all good
$ audit drill trainer:step --inject nan@4             # survived
"""

import glob
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

# -----------------------------------------------------------------------------
# data
n_glyphs, height, width = 16, 8, 6
n_columns = 8           # glyphs of a strip
noise = 0.4
# model
n_layers, n_streams, n_embd = 2, 4, 32
sinkhorn_rounds = 6
temperature = 0.05      # of the mixing: the smaller, the nearer to a permutation
# training
batch_size = 32
lr = 1e-2
warmup = 0.1
total_steps = 400
grad_clip = 1.0
most_skipped = 20       # updates that may be skipped in an epoch before the run is stopped
steps_per_epoch = 20
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small
font = torch.randn(n_glyphs, height * width, device=device)


def strips():
    """A batch of strips, and what stands on them."""
    text = torch.randint(n_glyphs, (batch_size, n_columns), device=device)
    return font[text] + noise * torch.randn(batch_size, n_columns, height * width, device=device), text


class RMSNorm(nn.Module):

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


class Mixing(nn.Module):
    """A doubly stochastic matrix for each column, from what its streams hold."""

    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(n_streams * n_embd)
        self.route = nn.Linear(n_streams * n_embd, n_streams * n_streams)
        nn.init.normal_(self.route.weight, std=0.05)
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, streams):
        logits = self.gate * self.route(self.norm(streams.flatten(2)))
        # in logarithms: logsumexp subtracts the largest before exp, so that nothing overflows however large a logit is
        mix = logits.view(*logits.shape[:2], n_streams, n_streams) / temperature
        for _ in range(sinkhorn_rounds):
            mix = mix - mix.logsumexp(dim=-1, keepdim=True)
            mix = mix - mix.logsumexp(dim=-2, keepdim=True)
        return mix.exp()


class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.mixing = Mixing()
        self.read = nn.Parameter(torch.randn(n_streams, 1))     # how much of each stream the block sees
        self.norm = RMSNorm(n_embd)
        self.expand = nn.Linear(n_embd, 2 * n_embd)
        self.project = nn.Linear(2 * n_embd, n_streams * n_embd)

    def forward(self, streams):
        mixed = torch.einsum("bcij,bcjd->bcid", self.mixing(streams), streams)
        change = self.project(F.gelu(self.expand(self.norm((self.read * mixed).sum(dim=2)))))
        return mixed + change.view_as(mixed)


class Recogniser(nn.Module):

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(height * width, n_streams * n_embd)
        self.blocks = nn.Sequential(*(Block() for _ in range(n_layers)))
        self.read = nn.Parameter(torch.randn(n_streams, 1))
        self.norm = RMSNorm(n_embd)
        self.head = nn.Linear(n_embd, n_glyphs)

    def forward(self, strip):
        streams = self.embed(strip).view(*strip.shape[:2], n_streams, n_embd)
        return self.head(self.norm((self.read * self.blocks(streams)).sum(dim=2)))


model = Recogniser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
trained = 0
skipped = torch.zeros((), device=device)                # updates without a finite gradient, counted on the device


def rate(step):
    """Up in a straight line, down along a cosine: a function of the step, so that there is no state to go stale."""
    if step < warmup * total_steps:
        return lr * (step + 1) / (warmup * total_steps)
    done = (step - warmup * total_steps) / ((1 - warmup) * total_steps)
    return 0.5 * lr * (1 + math.cos(math.pi * min(done, 1.0)))


def save():
    """Only weights that are finite, and whole or not at all."""
    if not all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values()):
        raise FloatingPointError(f"weights are not finite at step {trained}: nothing was saved")
    os.makedirs("checkpoints", exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": trained, "rng": torch.get_rng_state()}
    file = f"checkpoints/epoch_{trained // steps_per_epoch:02}.pt"
    torch.save(state, file + ".new")
    os.replace(file + ".new", file)


def resume():
    global trained
    files = sorted(glob.glob("checkpoints/epoch_*.pt"))
    if files:
        kept = torch.load(files[-1], map_location="cpu", weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])    # its rate is set anew in every step
        torch.set_rng_state(kept["rng"])
        trained = kept["step"]


def step():
    """One update. A gradient that is not finite becomes zero, on the device: no step waits to learn that all is well."""
    global trained
    for group in optimizer.param_groups:
        group["lr"] = rate(trained)
    strip, text = strips()
    loss = F.cross_entropy(model(strip).flatten(0, 1), text.flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = clip_grad_norm_(model.parameters(), grad_clip)
    finite = norm.isfinite()
    for parameter in model.parameters():
        parameter.grad = torch.where(finite, parameter.grad, 0.0)
    skipped.add_(~finite)
    optimizer.step()
    trained += 1
    return torch.where(finite, loss.detach(), 0.0)


def train(n_epochs):
    for _ in range(n_epochs):
        losses = [step() for _ in range(steps_per_epoch)]
        print(f"step {trained}  loss {torch.stack(losses).mean().item():.3f}  lr {rate(trained):.2e}  skipped {skipped.item():.0f}")
        if skipped > most_skipped:
            raise FloatingPointError(f"{skipped.item():.0f} updates were skipped by step {trained}")
        save()
        skipped.zero_()


if __name__ == "__main__":
    resume()
    train(4)
