"""Salient objects from RGB, with depth estimation as a second task (depth is a label in training only)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIZE = 32


class RgbdSaliency(Dataset):
    def __init__(self, count):
        rng = torch.Generator().manual_seed(3)
        self.centres = torch.randint(8, SIZE - 8, (count, 2), generator=rng)
        self.radii = torch.randint(4, 8, (count,), generator=rng)
        self.noise = torch.randn(count, 3, SIZE, SIZE, generator=rng)

    def __len__(self):
        return len(self.centres)

    def __getitem__(self, index):
        rows = torch.arange(SIZE)[:, None] - self.centres[index, 0]
        columns = torch.arange(SIZE)[None, :] - self.centres[index, 1]
        distance = (rows**2 + columns**2).float().sqrt()
        mask = (distance < self.radii[index]).float()
        depth = (distance / SIZE).clamp(max=1.0)
        image = mask * torch.tensor([1.0, 0.2, -0.5])[:, None, None] + 0.3 * self.noise[index]
        return image, mask[None], depth


def block(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class CollaborativeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.low = block(3, 16)
        self.high = nn.Sequential(block(16, 32, 2), block(32, 32))
        self.saliency = nn.Conv2d(48, 1, 3, padding=1)
        self.depth = nn.Conv2d(48, 1, 3, padding=1)

    def forward(self, image):
        low = self.low(image)
        high = F.interpolate(self.high(low), size=low.shape[-2:], mode="bilinear", align_corners=False)
        features = torch.cat([low, high], dim=1)
        return self.saliency(features), self.depth(features).sigmoid()


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for image, mask, depth in loader:
        optimizer.zero_grad()
        pred_mask, pred_depth = model(image)
        loss_mask = F.binary_cross_entropy_with_logits(pred_mask, mask)
        loss_depth = F.smooth_l1_loss(pred_depth, depth.unsqueeze(1))
        loss = loss_mask + 2 * loss_depth
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    loader = DataLoader(RgbdSaliency(96), batch_size=12, shuffle=True)
    model = CollaborativeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)
    for epoch in range(5):
        loss = train_epoch(model, loader, optimizer)
        scheduler.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
