import argparse
import json
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from records import simulate, split


class ResBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(ch, ch, 5, padding=2 * dilation, dilation=dilation),
            nn.BatchNorm1d(ch), nn.ReLU(), nn.Dropout(0.1),
            nn.Conv1d(ch, ch, 1),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class ECGNet(nn.Module):
    def __init__(self, ch=20):
        super().__init__()
        self.stem = nn.Conv1d(1, ch, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[ResBlock(ch, 2 ** i) for i in range(3)])
        self.head = nn.Linear(2 * ch, 1)

    def forward(self, x):
        h = self.blocks(self.stem(x))
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], -1)).squeeze(-1)


def to_dataset(records):
    x = torch.from_numpy(np.stack([r.signal for r in records])).unsqueeze(1)
    y = torch.tensor([float(r.label) for r in records])
    return TensorDataset(x, y)


@torch.no_grad()
def evaluate(model, ds):
    model.eval()
    x, y = ds.tensors
    logits = model(x)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, y).item()
    acc = ((logits > 0) == (y > 0.5)).float().mean().item()
    model.train()
    return {"val_loss": round(loss, 8), "val_acc": round(acc, 4)}


def main():
    parser = argparse.ArgumentParser("ECG rhythm classifier")
    parser.add_argument("--seed", type=int, default=2718)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    opts = parser.parse_args()

    torch.set_num_threads(1)
    random.seed(opts.seed)
    np.random.seed(opts.seed)
    torch.manual_seed(opts.seed)
    torch.use_deterministic_algorithms(True)

    records = simulate(opts.records, opts.length, np.random.default_rng(opts.seed))
    train_recs, val_recs = split(records)
    train_ds, val_ds = to_dataset(train_recs), to_dataset(val_recs)
    loader = DataLoader(train_ds, opts.batch_size, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(opts.seed))

    model = ECGNet()
    opt = torch.optim.AdamW(model.parameters(), lr=opts.lr)
    log = []
    for epoch in range(opts.epochs):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.append(loss.item())
            if len(log) % 4 == 1:
                print(f"iter {len(log):3d}  bce {log[-1]:.8f}")
        print(json.dumps({"epoch": epoch, **evaluate(model, val_ds)}))


if __name__ == "__main__":
    main()
