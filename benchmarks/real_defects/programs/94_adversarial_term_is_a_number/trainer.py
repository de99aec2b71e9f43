"""Reconstruction of undersampled images at one site, aligned with a target site by a domain discriminator."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(20)
SIDE, BATCH, KEEP, LAMBDA = 24, 8, 0.4, 0.1


class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.InstanceNorm2d(width), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.LeakyReLU(0.2),
        )

    def forward(self, image):
        return self.layers(image)


class Reconstructor(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.encoder = Encoder(width)
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 1, 3, padding=1),
        )

    def forward(self, image):
        latent = self.encoder(image)
        return image + self.decoder(latent), latent


class DomainDiscriminator(nn.Module):
    def __init__(self, inputs=32):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, 32, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, 1)
        )

    def forward(self, latent):
        return self.layers(latent)


def scans(contrast):
    """Smooth full images of a site and what is left of them after undersampling in k-space."""
    full = F.avg_pool2d(torch.randn(BATCH, 1, SIDE + 6, SIDE + 6), 7, stride=1) * contrast
    mask = (torch.rand(SIDE) < KEEP).float()
    mask[0] = 1
    return full, torch.fft.ifft2(torch.fft.fft2(full) * mask).real


class LocalUpdate:
    def __init__(self):
        self.net, self.discriminator = Reconstructor(), DomainDiscriminator()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.optimizer_d = torch.optim.Adam(self.discriminator.parameters(), lr=1e-4)
        self.history = []

    def train_discriminator(self, source, target):
        real, fake = self.discriminator(source), self.discriminator(target)
        loss = F.binary_cross_entropy_with_logits(real, torch.ones_like(real))
        loss = loss + F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
        self.optimizer_d.zero_grad()
        loss.backward()
        self.optimizer_d.step()

    def update(self):
        (full, under), (_, other) = scans(contrast=3.0), scans(contrast=6.0)
        recon, latent = self.net(under)
        _, latent_other = self.net(other)
        self.train_discriminator(latent.detach(), latent_other.detach())
        loss = F.l1_loss(recon, full)
        if LAMBDA:
            score = self.discriminator(latent_other)
            loss_adv_g = F.binary_cross_entropy_with_logits(score, torch.ones_like(score))
            loss_adv_g = loss_adv_g.detach().item()
            self.history.append(loss_adv_g)
            loss = loss + LAMBDA * loss_adv_g
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


local = LocalUpdate()


def step():
    local.update()
