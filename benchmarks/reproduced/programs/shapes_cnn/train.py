import os
import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from augment import Compose, Contrast, RandomFlip, RandomShift


@dataclass
class Config:
    seed: int = 42
    n_images: int = 480
    size: int = 20
    batch: int = 32
    epochs: int = 2
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-4


def set_seed(seed: int) -> None:
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def draw_shape(kind: int, size: int, rng: np.random.Generator) -> np.ndarray:
    yy, xx = np.mgrid[0:size, 0:size]
    cy, cx = rng.uniform(size * 0.35, size * 0.65, size=2)
    r = rng.uniform(size * 0.18, size * 0.3)
    if kind == 0:
        mask = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
    elif kind == 1:
        mask = np.maximum(abs(yy - cy), abs(xx - cx)) < r
    else:
        mask = (abs(yy - cy) < r / 3) | (abs(xx - cx) < r / 3)
    img = mask.astype(np.float32) + 0.15 * rng.standard_normal((size, size))
    return img.astype(np.float32)


class Shapes(Dataset):
    def __init__(self, cfg: Config, transform=None):
        rng = np.random.default_rng(cfg.seed)
        self.labels = rng.integers(0, 3, size=cfg.n_images)
        self.images = [draw_shape(int(k), cfg.size, rng) for k in self.labels]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i]
        if self.transform is not None:
            img = self.transform(img)
        return torch.from_numpy(img)[None], int(self.labels[i])


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


def build_model():
    return nn.Sequential(
        conv_block(1, 12), conv_block(12, 24),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(24 * 5 * 5, 3),
    )


def main():
    cfg = Config()
    torch.set_num_threads(1)
    set_seed(cfg.seed)
    tf = Compose(RandomShift(2), RandomFlip(), Contrast())
    g = torch.Generator()
    g.manual_seed(cfg.seed)
    loader = DataLoader(Shapes(cfg, tf), batch_size=cfg.batch, shuffle=True, generator=g)
    model = build_model()
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=cfg.momentum,
                          weight_decay=cfg.weight_decay)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.epochs * len(loader))
    crit = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(cfg.epochs):
        model.train()
        hits = seen = 0
        for it, (x, y) in enumerate(loader):
            out = model(x)
            loss = crit(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            hits += (out.argmax(1) == y).sum().item()
            seen += len(y)
            if it % 5 == 0:
                print(f"epoch {epoch} it {it:2d} loss {loss.item():.7f}")
        print(f"epoch {epoch} train acc {hits / seen:.3f}")


if __name__ == "__main__":
    main()
