"""Conditional image translation (pix2pix)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, LAMBDA_L1 = 2, 100.0


def block(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 4 if stride == 2 else 3, stride, 1), nn.InstanceNorm2d(cout), nn.LeakyReLU(0.2))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = block(3, 16, 2), block(16, 32, 2)
        self.up2 = nn.ConvTranspose2d(32, 16, 4, 2, 1)
        self.up1 = nn.ConvTranspose2d(32, 3, 4, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = F.relu(self.up2(self.down2(a)))
        return torch.tanh(self.up1(torch.cat([a, b], dim=1)))


class Pix2Pix:
    def __init__(self):
        self.netG = Generator().to(device)
        self.netD = nn.Sequential(block(6, 32, 2), block(32, 64, 1), nn.Conv2d(64, 1, 3, 1, 1)).to(device)
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
        self.rng = torch.Generator(device=device).manual_seed(18)

    def set_input(self):
        self.real_A = torch.rand(BATCH, 3, 32, 32, device=device, generator=self.rng) * 2 - 1
        self.real_B = self.real_A.flip(1)

    def gan_loss(self, prediction, real):
        return F.mse_loss(prediction, torch.ones_like(prediction) if real else torch.zeros_like(prediction))

    def backward_D(self):
        fake = self.netD(torch.cat([self.real_A, self.fake_B.detach()], 1))
        real = self.netD(torch.cat([self.real_A, self.real_B], 1))
        self.loss_D = 0.5 * (self.gan_loss(fake, False) + self.gan_loss(real, True))
        self.loss_D.backward()

    def backward_G(self):
        prediction = self.netD(torch.cat([self.real_A, self.fake_B], 1))
        self.loss_G = self.gan_loss(prediction, True) + LAMBDA_L1 * F.l1_loss(self.fake_B, self.real_B)
        self.loss_G.backward()

    def optimize_parameters(self):
        self.fake_B = self.netG(self.real_A)
        self.optimizer_D.zero_grad()
        self.backward_D()
        self.optimizer_D.step()
        self.netD.requires_grad_(False)
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()
        self.netD.requires_grad_(True)


model = Pix2Pix()
iteration = 0


def step():
    global iteration
    model.set_input()
    model.optimize_parameters()
    iteration += 1
    if iteration % 50 == 0:
        print(iteration, model.loss_D.item(), model.loss_G.item())
