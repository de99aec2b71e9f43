"""Small AWD-style LSTM language model on a synthetic Markov corpus."""
import random
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Config:
    vocab: int = 48
    emb: int = 32
    hidden: int = 64
    layers: int = 2
    bptt: int = 24
    batch: int = 12
    steps: int = 30
    lr: float = 4e-3
    clip: float = 0.5
    seed: int = 42
    # separate stream so that masks do not depend on the data order
    mask_seed: Optional[int] = 0
    drop: dict = field(default_factory=lambda: dict(inp=0.25, hid=0.2, out=0.3))


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def mask_generator(cfg, state=None):
    g = torch.Generator()
    if state is not None:
        g.set_state(state)
    elif cfg.mask_seed:
        g.manual_seed(cfg.mask_seed)
    else:
        g.seed()
    return g


class LockedDropout(nn.Module):
    """Same mask for all time steps (Gal & Ghahramani)."""

    def __init__(self, p, gen):
        super().__init__()
        self.p, self.gen = p, gen

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = 1 - self.p
        probs = torch.full((1, x.size(1), x.size(2)), keep)
        mask = torch.bernoulli(probs, generator=self.gen)
        return x * (mask / keep)


class RNNModel(nn.Module):
    def __init__(self, cfg, gen):
        super().__init__()
        self.encoder = nn.Embedding(cfg.vocab, cfg.emb)
        sizes = [cfg.emb] + [cfg.hidden] * (cfg.layers - 1) + [cfg.emb]
        self.rnns = nn.ModuleList(nn.LSTM(a, b) for a, b in zip(sizes, sizes[1:]))
        self.din = LockedDropout(cfg.drop["inp"], gen)
        self.dhid = LockedDropout(cfg.drop["hid"], gen)
        self.dout = LockedDropout(cfg.drop["out"], gen)
        self.decoder = nn.Linear(cfg.emb, cfg.vocab)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x, hidden):
        h = self.din(self.encoder(x))
        new = []
        for i, rnn in enumerate(self.rnns):
            h, s = rnn(h, hidden[i])
            new.append(tuple(t.detach() for t in s))
            if i < len(self.rnns) - 1:
                h = self.dhid(h)
        return self.decoder(self.dout(h)), new


def markov_corpus(cfg, n=12000):
    trans = np.random.dirichlet(np.full(cfg.vocab, 0.08), size=cfg.vocab)
    cum = trans.cumsum(1)
    out, cur = np.empty(n, dtype=np.int64), 0
    for i, u in enumerate(np.random.rand(n)):
        cur = min(int(np.searchsorted(cum[cur], u)), cfg.vocab - 1)
        out[i] = cur
    return torch.from_numpy(out)


def batchify(stream, bsz):
    n = stream.numel() // bsz
    return stream[: n * bsz].view(bsz, n).t().contiguous()


def main():
    cfg = Config()
    set_seed(cfg.seed)
    data = batchify(markov_corpus(cfg), cfg.batch)
    model = RNNModel(cfg, mask_generator(cfg))
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, betas=(0.7, 0.99))
    hidden = [None] * cfg.layers
    model.train()
    pos = 0
    for step in range(cfg.steps):
        if pos + cfg.bptt + 1 >= data.size(0):
            pos, hidden = 0, [None] * cfg.layers
        x, y = data[pos:pos + cfg.bptt], data[pos + 1:pos + 1 + cfg.bptt]
        pos += cfg.bptt
        logits, hidden = model(x, hidden)
        loss = F.cross_entropy(logits.reshape(-1, cfg.vocab), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        opt.step()
        print(f"step {step:3d} | loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
