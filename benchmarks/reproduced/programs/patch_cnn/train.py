import argparse
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

from augment import train_transform

torch.set_num_threads(1)


def seed_everything(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)
    torch.use_deterministic_algorithms(True)


class Blobs(Dataset):
    """3x20x20 images, class = orientation of a coloured stripe."""

    def __init__(self, n, classes, transform=None):
        yy, xx = np.mgrid[0:20, 0:20] / 20.0
        self.y = np.random.randint(0, classes, size=n)
        ang = np.pi * self.y / classes + np.random.normal(0, 0.1, n)
        freq = 12 + 3 * np.random.rand(n)
        wave = np.sin(freq[:, None, None] * (np.cos(ang)[:, None, None] * xx + np.sin(ang)[:, None, None] * yy))
        tint = np.random.rand(n, 3, 1, 1)
        self.x = (wave[:, None] * tint + 0.3 * np.random.randn(n, 3, 20, 20)).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.transform is not None:
            x = self.transform(x)
        return torch.from_numpy(x), int(self.y[i])


def block(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


def make_net(classes, width):
    return nn.Sequential(
        block(3, width), block(width, 2 * width, 2), block(2 * width, 2 * width),
        block(2 * width, 4 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=1337)
    ap.add_argument("--classes", type=int, default=6)
    ap.add_argument("--width", type=int, default=12)
    ap.add_argument("--bs", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=0.05)
    args = ap.parse_args()

    seed_everything(args.seed)
    ds = Blobs(512, args.classes, train_transform(args.seed))
    shuffle = torch.Generator().manual_seed(args.seed)
    dl = DataLoader(ds, args.bs, shuffle=True, generator=shuffle, num_workers=0, drop_last=True)
    net = make_net(args.classes, args.width)
    opt = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(dl))
    crit = nn.CrossEntropyLoss(label_smoothing=0.1)

    it = 0
    for ep in range(args.epochs):
        net.train()
        hit = 0
        for x, y in dl:
            out = net(x)
            loss = crit(out, y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            hit += (out.argmax(1) == y).sum().item()
            print(f"[{ep}:{it:03d}] loss={loss.item():.7f} lr={sched.get_last_lr()[0]:.5f}")
            it += 1
        print(f"epoch {ep} acc {hit / (len(dl) * args.bs):.3f}")


if __name__ == "__main__":
    main()
