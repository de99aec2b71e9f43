"""Pre-training of a masked encoder with AdamW as it is made by default."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

PATCHES, DIM, LAYERS, BATCH = 36, 96, 6, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mask = nn.Linear(48, DIM), nn.Parameter(torch.zeros(DIM))
        layer = nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, 48)

    def forward(self, patches, hidden):
        x = torch.where(hidden[..., None], self.mask, self.embed(patches))
        return self.head(self.layers(x))


model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.02)
rng = torch.Generator(device=device).manual_seed(114)


def step():
    patches = torch.randn(BATCH, PATCHES, 48, device=device, generator=rng)
    hidden = torch.rand(BATCH, PATCHES, device=device, generator=rng) < 0.6
    error = (model(patches, hidden) - patches).square().mean(-1)
    loss = (error * hidden).sum() / hidden.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
