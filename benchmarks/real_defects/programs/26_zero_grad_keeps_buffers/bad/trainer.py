"""3-D segmentation with deep supervision."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, CLASSES, SIDE = 2, 3, 12


def double(cin, cout):
    return nn.Sequential(nn.Conv3d(cin, cout, 3, padding=1), nn.InstanceNorm3d(cout, affine=True), nn.LeakyReLU(0.01))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1, self.enc2 = double(1, 8), double(8, 16)
        self.pool = nn.MaxPool3d(2)
        self.up = nn.ConvTranspose3d(16, 8, 2, 2)
        self.dec = double(16, 8)
        self.out_low, self.out_full = nn.Conv3d(16, CLASSES, 1), nn.Conv3d(8, CLASSES, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(self.pool(a))
        return self.out_full(self.dec(torch.cat([a, self.up(b)], dim=1))), self.out_low(b)


class NetworkTrainer:
    def __init__(self):
        self.network = UNet().to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.99, nesterov=True, weight_decay=3e-5)
        self.rng = torch.Generator(device=device).manual_seed(26)
        self.losses = []

    def batch(self):
        data = torch.randn(BATCH, 1, SIDE, SIDE, SIDE, device=device, generator=self.rng)
        smooth = F.avg_pool3d(data, 3, 1, 1)
        target = (smooth > 0.05).long()[:, 0] + (smooth > 0.25).long()[:, 0]
        return data, target

    def train_step(self):
        data, target = self.batch()
        self.optimizer.zero_grad(set_to_none=False)
        full, low = self.network(data)
        loss = F.cross_entropy(full, target) + 0.5 * F.cross_entropy(low, target[:, ::2, ::2, ::2])
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 12)
        self.optimizer.step()
        return loss.detach()


trainer = NetworkTrainer()


def step():
    trainer.losses.append(trainer.train_step())
    if len(trainer.losses) == 50:
        print("mean loss", torch.stack(trainer.losses).mean().item())
        trainer.losses.clear()
