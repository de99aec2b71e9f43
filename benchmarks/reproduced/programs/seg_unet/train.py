import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from cells import Cells, init_worker


def double_conv(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(),
        nn.Conv2d(b, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(),
    )


class SmallUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.d1, self.d2, self.d3 = double_conv(1, w), double_conv(w, 2 * w), double_conv(2 * w, 4 * w)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 2, stride=2)
        self.u2, self.u1 = double_conv(4 * w, 2 * w), double_conv(2 * w, w)
        self.final = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(self.pool(a))
        c = self.d3(self.pool(b))
        b = self.u2(torch.cat([self.up2(c), b], 1))
        a = self.u1(torch.cat([self.up1(b), a], 1))
        return self.final(a)


def dice_bce(logits, target):
    p = logits.sigmoid()
    inter = (p * target).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return nn.functional.binary_cross_entropy_with_logits(logits, target) + dice.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=5)
    ap.add_argument("--n", type=int, default=160)
    ap.add_argument("--size", type=int, default=24)
    ap.add_argument("--bs", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--workers", type=int, default=2)
    a = ap.parse_args()

    torch.set_num_threads(1)
    random.seed(a.seed)
    np.random.seed(a.seed)
    torch.manual_seed(a.seed)

    g = torch.Generator()
    g.manual_seed(a.seed)
    dl = DataLoader(Cells(a.n, a.size, a.seed), batch_size=a.bs, shuffle=True, drop_last=True,
                    num_workers=a.workers, worker_init_fn=init_worker, generator=g,
                    persistent_workers=a.workers > 0)
    net = SmallUNet()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    for ep in range(a.epochs):
        tot = 0.0
        for img, mask in dl:
            loss = dice_bce(net(img), mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {ep}: mean loss {tot / len(dl):.8f}, last {loss.item():.8f}")

    held = Cells(32, a.size, a.seed + 100, augment=False)
    x = torch.stack([held[i][0] for i in range(len(held))])
    y = torch.stack([held[i][1] for i in range(len(held))])
    with torch.no_grad():
        pred = (net(x) > 0).float()
    iou = ((pred * y).sum() / ((pred + y) > 0).sum()).item()
    print(f"held-out IoU {iou:.5f}")


if __name__ == "__main__":
    main()
