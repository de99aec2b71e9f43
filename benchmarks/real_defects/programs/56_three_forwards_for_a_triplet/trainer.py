"""Metric learning on small volumes with a triplet loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIDE, CLASSES = 4, 12, 12


class VolumeEmbedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv3d(1, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.LeakyReLU(),
            nn.MaxPool3d(2),
            nn.Conv3d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.LeakyReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        )
        self.head = nn.Linear(16, 16)

    def forward(self, volume):
        return F.normalize(self.head(self.features(volume)), dim=1)


model = VolumeEmbedder().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.TripletMarginLoss(margin=0.4)
rng = torch.Generator(device=device).manual_seed(56)
shapes = torch.randn(CLASSES, 1, SIDE, SIDE, SIDE, device=device, generator=rng)
running = torch.zeros((), device=device)
count = 0


def noisy(labels):
    clean = shapes[labels]
    return clean + 0.7 * torch.randn(clean.shape, device=device, generator=rng)


def triplets():
    label = torch.randint(0, CLASSES, (BATCH,), device=device, generator=rng)
    other = (label + torch.randint(1, CLASSES, (BATCH,), device=device, generator=rng)) % CLASSES
    return noisy(label), noisy(label), noisy(other)


def step():
    global count
    anchors, positives, negatives = triplets()
    anchor_out = model(anchors)
    positive_out = model(positives)
    negative_out = model(negatives)
    loss = criterion(anchor_out, positive_out, negative_out)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(f"step {count}: {running.item() / 50:.4f}")
        running.zero_()
