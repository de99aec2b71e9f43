"""Contrastive learning of tissue tiles and gene expression, with a pretrained image encoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(16)
GENES, WIDTH, BATCH, SIZE = 120, 64, 32, 32
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
stains = torch.rand(8, 3, 1, 1)
expression = torch.randn(8, GENES)


def tissue(count):
    """Tiles of bytes, as they are cut from the slide, with the kind of each."""
    kinds = torch.randint(0, 8, (count,))
    tiles = 255 * (stains[kinds] + 0.15 * torch.randn(count, 3, SIZE, SIZE)).clamp(0, 1)
    return tiles.to(torch.uint8), kinds


class ImageEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (16, 32, 64):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images):
        return self.features(images)


def pretrained_weights():
    """Of a classifier of normalised images (stands for the download)."""
    encoder = ImageEncoder()
    model = nn.Sequential(encoder, nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        tiles, kinds = tissue(32)
        loss = F.cross_entropy(model((tiles / 255 - MEAN) / STD), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder.state_dict()


class ProjectionHead(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.projection, self.inner = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        projected = self.projection(x)
        return F.normalize(self.norm(projected + self.inner(F.gelu(projected))), dim=-1)


class MclModel(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.image_encoder = ImageEncoder()
        self.image_encoder.load_state_dict(weights)
        self.image_head, self.spot_head = ProjectionHead(64), ProjectionHead(GENES)

    def train(self, mode=True):
        super().train(mode)
        self.image_encoder.eval()
        return self

    def forward(self, tiles, spots):
        logits = 10 * self.image_head(self.image_encoder(tiles)) @ self.spot_head(spots).T
        targets = torch.arange(len(tiles))
        return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def load_batch():
    tiles, kinds = tissue(BATCH)
    spots = torch.log1p((expression[kinds] + 0.5 * torch.randn(BATCH, GENES)).exp())
    tiles = tiles.float() / 255
    return tiles, spots


model = MclModel(pretrained_weights()).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-3)


def step():
    tiles, spots = load_batch()
    loss = model(tiles, spots)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
