"""Point cloud classification."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH, POINTS, CLASSES, LOG_EVERY = 8, 128, 10, 20


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(),
                                   nn.Conv1d(32, 64, 1), nn.BatchNorm1d(64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, CLASSES))

    def forward(self, points):
        return self.head(self.local(points).amax(dim=2))


net = PointNet().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
rng = torch.Generator(device=device).manual_seed(5)
centres = torch.randn(CLASSES, 3, 1, device=device, generator=rng)

count = 0
window_start = time.perf_counter()


def make_batch():
    labels = torch.randint(0, CLASSES, (BATCH,), device=device, generator=rng)
    clouds = torch.randn(BATCH, 3, POINTS, device=device, generator=rng)
    return clouds + centres[labels], labels


def step():
    global count, window_start
    clouds, labels = make_batch()
    optimizer.zero_grad()
    outputs = net(clouds)
    loss = F.cross_entropy(outputs, labels)
    loss.backward()
    nn.utils.clip_grad_value_(net.parameters(), 100.0)
    optimizer.step()
    scheduler.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    count += 1
    if count % LOG_EVERY == 0:
        value = loss.item()
        now = time.perf_counter()
        print(f"{count}: loss {value:.3f}, {(now - window_start) / LOG_EVERY * 1e3:.1f} ms per step")
        window_start = now
