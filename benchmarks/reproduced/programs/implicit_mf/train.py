"""BPR matrix factorisation on implicit feedback."""
import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from interactions import ClickLog, synth_clicks


class BPR(nn.Module):
    def __init__(self, n_users, n_items, dim):
        super().__init__()
        self.users = nn.Embedding(n_users, dim)
        self.items = nn.Embedding(n_items, dim)
        self.bias = nn.Embedding(n_items, 1)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def score(self, u, i):
        return (self.users(u) * self.items(i)).sum(-1) + self.bias(i).squeeze(-1)

    def forward(self, u, pos, neg):
        margin = self.score(u, pos) - self.score(u, neg)
        reg = self.users(u).pow(2).mean() + self.items(pos).pow(2).mean() + self.items(neg).pow(2).mean()
        return -F.logsigmoid(margin).mean(), reg


def fix_seeds(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)


@torch.no_grad()
def hit_rate(model, log, k=10):
    users = torch.arange(log.n_users)
    full = model.users(users) @ model.items.weight.T + model.bias.weight.T
    top = full.topk(k, dim=1).indices
    clicked = torch.zeros(log.n_users, log.n_items, dtype=torch.bool)
    clicked[log.pairs[:, 0], log.pairs[:, 1]] = True
    return clicked.gather(1, top).float().mean().item()


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--users", type=int, default=200)
    ap.add_argument("--items", type=int, default=150)
    ap.add_argument("--per-user", type=int, default=12)
    ap.add_argument("--dim", type=int, default=16)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--reg", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args(argv)

    torch.set_num_threads(1)
    fix_seeds(args.seed)
    log = ClickLog(synth_clicks(args.users, args.items, args.per_user, args.seed), args.users, args.items)
    model = BPR(args.users, args.items, args.dim)
    opt = torch.optim.Adagrad(model.parameters(), lr=args.lr)

    step = 0
    for epoch in range(args.epochs):
        for u, p, n in log.batches(args.batch):
            rank, reg = model(torch.as_tensor(u), torch.as_tensor(p), torch.as_tensor(n))
            loss = rank + args.reg * reg
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 6 == 0:
                print(f"[{epoch}:{step:03d}] bpr={rank.item():.8f} total={loss.item():.8f}")
            step += 1
        print(f"[{epoch}] hit@10 (train) {hit_rate(model, log):.4f}")


if __name__ == "__main__":
    main()
