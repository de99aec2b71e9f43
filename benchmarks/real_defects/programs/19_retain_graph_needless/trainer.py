"""Few-shot talking head: embedder and generator trained against a projection discriminator."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, E = 2, 32

embedder = nn.Sequential(nn.Conv2d(6, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, E, 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveMaxPool2d(1), nn.Flatten()).to(device)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.style = nn.Linear(E, 64)
        self.last = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1), nn.Sigmoid())

    def forward(self, landmarks, e):
        scale, shift = self.style(e)[:, :, None, None].chunk(2, dim=1)
        return self.last(F.relu(F.instance_norm(self.first(landmarks)) * (1 + scale) + shift))


generator = Generator().to(device)
discriminator = nn.Sequential(nn.Conv2d(6, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 16, 3, 2, 1), nn.LeakyReLU(0.2),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1)).to(device)
optimizer_eg = torch.optim.Adam([*embedder.parameters(), *generator.parameters()], lr=5e-5)
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4)
rng = torch.Generator(device=device).manual_seed(19)
done = 0


def frames():
    x = torch.rand(BATCH, 3, 32, 32, device=device, generator=rng)
    landmarks = (x > 0.8).float()
    return x, landmarks, torch.cat([x.flip(-1), landmarks.flip(-1)], dim=1)


def step():
    global done
    x, landmarks, reference = frames()
    x_hat = generator(landmarks, embedder(reference))
    discriminator.requires_grad_(False)
    score = discriminator(torch.cat([x_hat, landmarks], dim=1))
    loss_eg = F.l1_loss(x_hat, x) - 0.1 * score.mean()
    optimizer_eg.zero_grad()
    loss_eg.backward(retain_graph=True)
    optimizer_eg.step()

    discriminator.requires_grad_(True)
    r_fake = discriminator(torch.cat([x_hat.detach(), landmarks], dim=1))
    r_real = discriminator(torch.cat([x, landmarks], dim=1))
    loss_d = F.relu(1 + r_fake).mean() + F.relu(1 - r_real).mean()
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()
    done += 1
    if done % 50 == 0:
        print(done, loss_eg.item(), loss_d.item())
