"""Encoder-decoder LSTM with attention: dates in words -> ISO digits."""
import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from runinfo import RunInfo

MONTHS = ("january february march april may june july august september october november december").split()
PAD, BOS = "_", "^"


def examples(n):
    out = []
    for _ in range(n):
        d, m, y = random.randint(1, 28), random.randrange(12), random.randint(1950, 2030)
        style = random.choice(["{d} {m} {y}", "{m} {d}, {y}", "the {d}. of {m} {y}"])
        out.append((style.format(d=d, m=MONTHS[m], y=y), f"{y:04d}-{m + 1:02d}-{d:02d}"))
    return out


class Alphabet:
    def __init__(self, strings):
        found = set().union(*map(set, strings)) - {PAD, BOS}
        self.symbols = [PAD, BOS] + sorted(found)
        self.where = dict(zip(self.symbols, range(len(self.symbols))))

    def pack(self, strings):
        width = max(map(len, strings))
        return torch.tensor([[self.where[c] for c in s.ljust(width, PAD)] for s in strings])


class Seq2Seq(nn.Module):
    def __init__(self, n_in, n_out, dim=48):
        super().__init__()
        self.src = nn.Embedding(n_in, dim)
        self.tgt = nn.Embedding(n_out, dim)
        self.enc = nn.LSTM(dim, dim // 2, bidirectional=True, batch_first=True)
        self.dec = nn.LSTM(dim, dim, batch_first=True)
        self.query = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(2 * dim, n_out)
        self.drop = nn.Dropout(0.1)

    def initialise(self):
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
            else:
                nn.init.zeros_(p)

    def forward(self, s, t):
        keys, _ = self.enc(self.drop(self.src(s)))
        state, _ = self.dec(self.drop(self.tgt(t)))
        score = self.query(state) @ keys.transpose(1, 2)
        score = score.masked_fill((s == 0).unsqueeze(1), -1e9)
        ctx = score.softmax(-1) @ keys
        return self.out(torch.cat([state, ctx], -1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=64)
    ap.add_argument("--n", type=int, default=800)
    ap.add_argument("--batch", type=int, default=50)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=5e-3)
    args = ap.parse_args()
    torch.set_num_threads(1)

    info = RunInfo()
    print(info.banner())
    random.seed(args.seed)
    data = examples(args.n)
    a_in, a_out = Alphabet([s for s, _ in data]), Alphabet([t for _, t in data])
    model = Seq2Seq(len(a_in.symbols), len(a_out.symbols))
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    model.initialise()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    info.lap("batch")
    for epoch in range(args.epochs):
        order = np.random.permutation(len(data))
        for b, lo in enumerate(range(0, len(order), args.batch)):
            chosen = [data[i] for i in order[lo:lo + args.batch]]
            s = a_in.pack([x for x, _ in chosen])
            t = a_out.pack([BOS + y for _, y in chosen])
            logits = model(s, t[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            ms = 1e3 * info.lap("batch")
            if b % 4 == 0:
                acc = (logits.argmax(-1) == t[:, 1:]).float().mean().item()
                print(f"{info.nick} e{epoch} b{b:02d} loss {loss.item():.8f} char-acc {acc:.3f} ({ms:.1f} ms)")


if __name__ == "__main__":
    main()
