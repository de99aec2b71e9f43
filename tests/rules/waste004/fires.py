import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_by, trained_with


def causal_mask_in_each_layer():
    class _Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = self.qkv(x).chunk(3, -1)
            mask = torch.triu(torch.ones(t, t, device=x.device), 1).bool()  # WASTE004
            a = (q @ k.transpose(1, 2) / math.sqrt(d)).masked_fill(mask, float("-inf")).softmax(-1)
            return x + self.out(a @ v)

    model = nn.Sequential(nn.Embedding(50, 16), _Block(16), _Block(16), nn.Linear(16, 50))

    def loss():
        ids = torch.randint(0, 50, (1, 128))
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    return trained_with(torch.optim.AdamW(model.parameters()), loss)


def sinusoidal_table_anew():
    class _Sin(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.l = nn.Embedding(50, 64), nn.Linear(64, 50)

        def positions(self, t, d):
            pe = torch.zeros(t, d)
            pos = torch.arange(t).unsqueeze(1).float()
            freq = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
            pe[:, 0::2] = torch.sin(pos * freq)
            pe[:, 1::2] = torch.cos(pos * freq)
            return pe

        def forward(self, ids):
            x = self.emb(ids)
            pe = self.positions(ids.shape[1], 64)  # WASTE004
            return self.l(x + pe)

    model = _Sin()

    def loss():
        ids = torch.randint(0, 50, (2, 256))
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())

    return trained_by(model, loss)


def prompts_of_frozen_text_tower():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().requires_grad_(False)
    model = nn.Linear(64, 32)
    model.register_buffer("prompts", torch.randn(10, 8, 32))

    def loss():
        with torch.no_grad():
            classes = F.normalize(text(model.prompts)[:, -1], dim=-1)  # WASTE004
        found = F.normalize(model(torch.randn(16, 64)), dim=-1)
        return F.cross_entropy(found @ classes.t(), torch.randint(10, (16,)))

    return trained_by(model, loss)


def style_of_frozen_convolutions_that_the_optimizer_holds():
    class _Style(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
            self.features.requires_grad_(False)
            self.decoder = nn.Conv2d(3, 3, 3, padding=1)
            self.register_buffer("style", torch.rand(1, 3, 32, 32))

        def gram(self, x):
            x = self.features(x).flatten(2)
            return x @ x.transpose(1, 2)

        def forward(self, x):
            wanted = self.gram(self.style)  # WASTE004
            return F.mse_loss(self.gram(self.decoder(x)), wanted.expand(len(x), -1, -1))

    model = _Style()
    return trained_by(model, lambda: model(torch.rand(4, 3, 32, 32)))
