"""
A text recogniser, as its owner wrote it: it reads a strip of glyphs column by column. Between its blocks run four residual
streams, mixed by matrices that Sinkhorn's iteration makes doubly stochastic (mHC, manifold-constrained hyper-connections).

It trains, and then the loss is NaN and stays so, after every restart as well. Each fault is numbered where it stands;
README.md says what each one does, ../repaired/trainer.py is the same training without them.

$ python trainer.py                                   # trains for a while, writes checkpoints/
$ audit run trainer:step --steps 50                   # tells where the NaN is born
$ audit checkpoint checkpoints --config lowered.json  # tells what the checkpoints hold
$ audit drill trainer:step --inject nan@4             # shows that nothing stops one
"""

import glob
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
lr = 4e-2               # lowered.json holds what it was lowered to, too late
warmup = 0.1
total_steps = 400
grad_clip = 10.0
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
        self.eps = 1e-20        # Fault 1: its derivative at zero, eps ** -1.5, is not a float32

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
        # Fault 2: exp of what nothing bounds. Above 88.7 it is infinite, and infinite / infinite is NaN.
        mix = torch.exp(logits.view(*logits.shape[:2], n_streams, n_streams) / temperature)
        for _ in range(sinkhorn_rounds):
            mix = mix / mix.sum(dim=-1, keepdim=True)
            mix = mix / mix.sum(dim=-2, keepdim=True)
        return mix


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
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=total_steps, pct_start=warmup)
trained = 0


def save():
    # Fault 3: saved whatever it holds, and the newest is what a restart takes: NaN for ever after.
    os.makedirs("checkpoints", exist_ok=True)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "step": trained,
    }
    torch.save(state, f"checkpoints/epoch_{trained // steps_per_epoch:02}.pt")


def resume():
    global trained
    files = sorted(glob.glob("checkpoints/epoch_*.pt"))
    if files:
        kept = torch.load(files[-1], map_location=device, weights_only=True)
        model.load_state_dict(kept["model"])
        # Fault 4: both hold the rate of the run that wrote them, and override the one that is configured above.
        optimizer.load_state_dict(kept["optimizer"])
        scheduler.load_state_dict(kept["scheduler"])
        trained = kept["step"]


def step():
    """One update."""
    global trained
    strip, text = strips()
    loss = F.cross_entropy(model(strip).flatten(0, 1), text.flatten())
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    scheduler.step()
    trained += 1
    return loss.detach()


def train(n_epochs):
    for epoch in range(n_epochs):
        losses = [step() for _ in range(steps_per_epoch)]
        print(f"epoch {epoch}  loss {torch.stack(losses).mean().item():.3f}  lr {scheduler.get_last_lr()[0]:.2e}")
        save()


if __name__ == "__main__":
    resume()
    train(4)
