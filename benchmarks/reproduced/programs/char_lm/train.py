import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from config import LMConfig

GRAMMAR = {
    "S": ["NP VP .", "NP VP and NP VP ."],
    "NP": ["the N", "a A N", "the A N"],
    "VP": ["V NP", "V", "V P NP"],
    "N": ["cat", "ship", "lamp", "doctor", "river"],
    "A": ["red", "quiet", "broken"],
    "V": ["sees", "finds", "waits", "turns"],
    "P": ["near", "under"],
}


def expand(sym, rng):
    if sym not in GRAMMAR:
        return sym
    return " ".join(expand(s, rng) for s in rng.choice(GRAMMAR[sym]).split())


class Corpus:
    def __init__(self, n_sentences, seed):
        rng = random.Random(f"corpus-{seed}")
        self.text = "\n".join(expand("S", rng) for _ in range(n_sentences))
        self.chars = sorted(set(self.text))
        lut = {c: i for i, c in enumerate(self.chars)}
        self.ids = torch.tensor([lut[c] for c in self.text])

    def batch(self, size, block):
        at = torch.randint(len(self.ids) - block - 1, (size,))
        x = torch.stack([self.ids[i:i + block] for i in at.tolist()])
        y = torch.stack([self.ids[i + 1:i + block + 1] for i in at.tolist()])
        return x, y


class Block(nn.Module):
    def __init__(self, c: LMConfig):
        super().__init__()
        self.n_head, self.p = c.n_head, c.dropout
        self.ln1, self.ln2 = nn.LayerNorm(c.d_model), nn.LayerNorm(c.d_model)
        self.qkv = nn.Linear(c.d_model, 3 * c.d_model)
        self.proj = nn.Linear(c.d_model, c.d_model)
        self.mlp = nn.Sequential(nn.Linear(c.d_model, 4 * c.d_model), nn.GELU(), nn.Linear(4 * c.d_model, c.d_model))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.n_head, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(d, -1))
        att = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        att = self.drop(att.masked_fill(mask, float("-inf")).softmax(-1))
        x = x + self.drop(self.proj((att @ v).transpose(1, 2).reshape(b, t, d)))
        return x + self.drop(self.mlp(self.ln2(x)))


class CharLM(nn.Module):
    def __init__(self, vocab, c: LMConfig):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, c.d_model), nn.Embedding(c.block, c.d_model)
        self.blocks = nn.Sequential(*[Block(c) for _ in range(c.n_layer)])
        self.ln = nn.LayerNorm(c.d_model)
        self.head = nn.Linear(c.d_model, vocab, bias=False)
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, x, y):
        h = self.tok(x) + self.pos(torch.arange(x.size(1)))
        logits = self.head(self.ln(self.blocks(h)))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def seed_all(n):
    random.seed(n)
    np.random.seed(n)
    torch.manual_seed(n)


def main(c=LMConfig()):
    torch.set_num_threads(1)
    seed_all(c.resolved_seed())
    corpus = Corpus(400, c.seed)
    model = CharLM(len(corpus.chars), c)
    opt = torch.optim.AdamW(model.parameters(), lr=c.lr, betas=(0.9, 0.95))
    for it in range(c.steps):
        for grp in opt.param_groups:
            grp["lr"] = c.lr * min(1.0, (it + 1) / c.warmup)
        loss = model(*corpus.batch(c.batch, c.block))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), c.clip)
        opt.step()
        if it % 5 == 0 or it == c.steps - 1:
            print(f"it {it:3d} | loss {loss.item():.8f} | bpc {loss.item() / math.log(2):.4f}")


if __name__ == "__main__":
    main()
