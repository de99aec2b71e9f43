"""AC-GAN on small images of ten drawn classes."""
import torch
import torch.nn as nn

torch.manual_seed(5)
LATENT, CLASSES, SIZE, BATCH = 32, 10, 16, 32
prototypes = torch.tanh(torch.randn(CLASSES, 1, SIZE, SIZE))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.labels = nn.Embedding(CLASSES, LATENT)
        self.project = nn.Linear(LATENT, 64 * 4 * 4)
        self.main = nn.Sequential(
            nn.BatchNorm2d(64),
            nn.ReLU(True),
            nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 1, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, noise, labels):
        return self.main(self.project(noise * self.labels(labels)).view(-1, 64, 4, 4))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, 32, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Dropout(0.3),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Flatten(),
        )
        self.fc_dis = nn.Linear(64 * 4 * 4, 1)
        self.fc_aux = nn.Linear(64 * 4 * 4, CLASSES)
        self.sigmoid = nn.Sigmoid()
        self.softmax = nn.Softmax(dim=1)

    def forward(self, images):
        features = self.main(images)
        return self.sigmoid(self.fc_dis(features)).view(-1), self.softmax(self.fc_aux(features))


def real_images():
    labels = torch.randint(0, CLASSES, (BATCH,))
    return (prototypes[labels] + 0.2 * torch.randn(BATCH, 1, SIZE, SIZE)).clamp(-1, 1), labels


netG, netD = Generator(), Discriminator()
dis_criterion, aux_criterion = nn.BCELoss(), nn.NLLLoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
real, fake = torch.ones(BATCH), torch.zeros(BATCH)


def step():
    # update D
    images, labels = real_images()
    fake_labels = torch.randint(0, CLASSES, (BATCH,))
    generated = netG(torch.randn(BATCH, LATENT), fake_labels)
    optimizerD.zero_grad()
    dis, aux = netD(images)
    errD_real = dis_criterion(dis, real) + aux_criterion(aux, labels)
    dis, aux = netD(generated.detach())
    errD_fake = dis_criterion(dis, fake) + aux_criterion(aux, fake_labels)
    (errD_real + errD_fake).backward()
    optimizerD.step()

    # update G
    optimizerG.zero_grad()
    dis, aux = netD(generated)
    errG = dis_criterion(dis, real) + aux_criterion(aux, fake_labels)
    errG.backward()
    optimizerG.step()
