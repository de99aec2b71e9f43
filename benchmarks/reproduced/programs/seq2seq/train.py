#!/usr/bin/env python
import random

import numpy as np
import torch
import torch.nn.functional as F

from nets import Seq2Seq
from schedule import ScheduledSampling

torch.set_num_threads(1)

BOS, EOS, OFFSET = 0, 1, 2


class Options:
    seed = 1234
    symbols = 20
    length = 10
    dim = 48
    batch = 32
    iters = 30
    lr = 4e-3


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_batch(opt):
    """source: random symbols; target: reversed, every symbol shifted by its left neighbour."""
    src = torch.randint(opt.symbols, (opt.batch, opt.length))
    rev = src.flip(1)
    tgt = (rev + torch.roll(rev, 1, dims=1)) % opt.symbols
    eos = torch.full((opt.batch, 1), EOS)
    return src + OFFSET, torch.cat([tgt + OFFSET, eos], 1)


def main(opt):
    seed_everything(opt.seed)
    sampler = ScheduledSampling()
    vocab = opt.symbols + OFFSET
    model = Seq2Seq(vocab, opt.dim, BOS, sampler)
    optim = torch.optim.Adam(model.parameters(), lr=opt.lr)
    running = None
    for it in range(opt.iters):
        model.train()
        src, tgt = make_batch(opt)
        loss = F.cross_entropy(model(src, tgt).reshape(-1, vocab), tgt.reshape(-1))
        optim.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        sampler.advance()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        print(f"iter {it:3d} loss {loss.item():.7f} avg {running:.5f} tf {sampler.rate:.3f}")


if __name__ == "__main__":
    main(Options())
