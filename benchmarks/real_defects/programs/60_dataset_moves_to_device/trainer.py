"""Image classification from uint8 arrays."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, CLASSES, SIDE = 32, 10, 24


class Images(Dataset):
    def __init__(self, size=1024):
        rng = np.random.default_rng(60)
        self.images = rng.integers(0, 256, (size, SIDE, SIDE, 3), dtype=np.uint8)
        self.labels = rng.integers(0, CLASSES, size)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).permute(2, 0, 1).float() / 255
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        label = torch.tensor(self.labels[index])
        return image.to(device), label.to(device)


loader = DataLoader(
    Images(),
    batch_size=BATCH,
    shuffle=True,
    drop_last=True,
    num_workers=0,
)


def endless():
    while True:
        yield from loader


stream = endless()
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
    nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
total = torch.zeros((), device=device)
count = 0


def step():
    global count
    images, labels = next(stream)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, total.item() / 50)
        total.zero_()
