"""Trains a hypernetwork on the latents of a few pictures, with a preview after each pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CHANNELS, SIDE, TEXT, LEVELS, PREVIEW_SEED = 4, 8, 32, 50, 1234


class PersonalizedBase:
    def __init__(self, count, batch_size):
        self.latents = torch.randn(count, CHANNELS, SIDE, SIDE).cumsum(-1) / 3
        self.texts = torch.randn(count, TEXT)
        self.batch_size = batch_size
        self.shuffle()

    def shuffle(self):
        self.indexes = torch.randperm(len(self.latents))

    def __len__(self):
        return len(self.latents) // self.batch_size

    def batch(self, step):
        place = step % len(self)
        if place == 0 and step:
            self.shuffle()
        chosen = self.indexes[place * self.batch_size : (place + 1) * self.batch_size]
        return self.latents[chosen], self.texts[chosen]


class Denoiser(nn.Module):
    """Stands for the large network that is not trained."""

    def __init__(self, width=32):
        super().__init__()
        self.inputs = nn.Conv2d(CHANNELS + 1, width, 3, padding=1)
        self.context = nn.Linear(TEXT, width)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.outputs = nn.Conv2d(width, CHANNELS, 3, padding=1)

    def forward(self, noisy, level, context):
        plane = level.view(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE)
        hidden = F.silu(self.inputs(torch.cat([noisy, plane], dim=1)))
        hidden = hidden + self.context(context)[:, :, None, None]
        return self.outputs(F.silu(self.middle(hidden)))


class Hypernetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(TEXT, 2 * TEXT), nn.ReLU(), nn.Linear(2 * TEXT, TEXT))

    def forward(self, context):
        return context + self.linear(context)


@torch.no_grad()
def preview(denoiser, hypernetwork, text):
    """A picture from the same noise each time, so that progress can be seen."""
    torch.manual_seed(PREVIEW_SEED)
    latent = torch.randn(1, CHANNELS, SIDE, SIDE)
    for level in torch.linspace(1, 0.1, 5):
        latent = latent - 0.2 * denoiser(latent, level.view(1), hypernetwork(text[None]))
    return latent.abs().mean().item()


def train_hypernetwork(denoiser, hypernetwork, dataset, steps):
    optimizer = torch.optim.AdamW(hypernetwork.parameters(), lr=1e-3)
    for step in range(steps):
        latents, texts = dataset.batch(step)
        level = torch.randint(1, LEVELS, (len(latents),)) / LEVELS
        noise = torch.randn_like(latents)
        weight = level.view(-1, 1, 1, 1)
        noisy = (1 - weight).sqrt() * latents + weight.sqrt() * noise
        loss = F.mse_loss(denoiser(noisy, level, hypernetwork(texts)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % len(dataset) == 0:
            print(f"step {step}: {loss.item():.4f}, preview {preview(denoiser, hypernetwork, dataset.texts[0]):.3f}")


def main():
    torch.manual_seed(0)
    denoiser = Denoiser().eval().requires_grad_(False)
    train_hypernetwork(denoiser, Hypernetwork(), PersonalizedBase(count=24, batch_size=4), steps=48)


if __name__ == "__main__":
    main()
