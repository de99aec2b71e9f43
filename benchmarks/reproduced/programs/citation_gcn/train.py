"""Semi-supervised GCN on a synthetic citation graph."""
import random
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from graph import component, grow, number

cfg = SimpleNamespace(seed=8, papers=700, topics=5, words=200, hidden=32, node_dim=8,
                      labelled=0.15, steps=30, lr=0.02, wd=5e-4, dropout=0.4)


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


def tensors(papers):
    index = number(component(papers[0]))
    n = len(index)
    x = torch.zeros(n, cfg.words)
    y = torch.zeros(n, dtype=torch.long)
    adj = torch.eye(n)
    for p, i in index.items():
        x[i, p.words] = 1.0
        y[i] = p.topic
        for q in p.cites:
            adj[i, index[q]] = 1.0
    d = adj.sum(1).rsqrt()
    return x, y, d[:, None] * adj * d[None, :]


class GCN(nn.Module):
    def __init__(self, n_nodes, n_words):
        super().__init__()
        self.node = nn.Embedding(n_nodes, cfg.node_dim)
        self.w1 = nn.Linear(n_words + cfg.node_dim, cfg.hidden, bias=False)
        self.w2 = nn.Linear(cfg.hidden, cfg.topics, bias=False)
        self.b1 = nn.Parameter(torch.zeros(cfg.hidden))
        self.b2 = nn.Parameter(torch.zeros(cfg.topics))
        nn.init.normal_(self.node.weight, std=0.1)
        for w in (self.w1, self.w2):
            nn.init.xavier_uniform_(w.weight)

    def forward(self, x, a):
        h = torch.cat([x, self.node.weight], 1)
        h = F.relu(a @ self.w1(h) + self.b1)
        h = F.dropout(h, cfg.dropout, self.training)
        return a @ self.w2(h) + self.b2


def accuracy(logits, y, rows):
    return (logits[rows].argmax(1) == y[rows]).float().mean().item()


def main():
    torch.set_num_threads(1)
    seed_everything(cfg.seed)
    x, y, a = tensors(grow(cfg.papers, cfg.topics, cfg.words, cfg.seed))
    order = torch.randperm(len(y))
    n_lab = int(cfg.labelled * len(y))
    known, rest = order[:n_lab], order[n_lab:]
    net = GCN(len(y), cfg.words)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, weight_decay=cfg.wd)
    print(f"{len(y)} nodes, {int((a > 0).sum())} entries, {n_lab} labelled")
    for step in range(cfg.steps):
        net.train()
        loss = F.cross_entropy(net(x, a)[known], y[known])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            net.eval()
            with torch.no_grad():
                acc = accuracy(net(x, a), y, rest)
            print(f"step {step:2d}  loss {loss.item():.8f}  transductive acc {acc:.4f}")


if __name__ == "__main__":
    main()
