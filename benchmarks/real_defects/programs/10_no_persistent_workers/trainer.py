"""Pose regression: short epochs over an annotation set held in memory."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCHS, BATCH, JOINTS = 8, 16, 17


class PoseDataset(Dataset):
    def __init__(self, size=128):
        rng = torch.Generator().manual_seed(0)
        self.joints = torch.randn(size, JOINTS, 3, generator=rng)
        self.cameras = torch.randn(size, 3, 3, generator=rng)

    def __len__(self):
        return len(self.joints)

    def __getitem__(self, index):
        joints = self.joints[index]
        if torch.rand(()) < 0.5:
            joints = joints * torch.tensor([-1.0, 1.0, 1.0])
        joints = joints - joints[:1]
        projected = (joints @ self.cameras[index])[:, :2]
        return projected.flatten(), joints.flatten()


class Lifter(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(JOINTS * 2, 128)
        self.mid = nn.ModuleList([nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU()) for _ in range(2)])
        self.out = nn.Linear(128, JOINTS * 3)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for layer in self.mid:
            x = x + layer(x)
        return self.out(x)


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        PoseDataset(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        pin_memory=device.type == "cuda",
    )
    model = Lifter().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        total = torch.zeros((), device=device)
        for keypoints, joints in loader:
            keypoints = keypoints.to(device, non_blocking=True)
            joints = joints.to(device, non_blocking=True)
            loss = F.l1_loss(model(keypoints), joints)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()
