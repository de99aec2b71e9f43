"""Binary segmentation of large masks with a soft dice loss and mixed precision."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIZE = 2, 256


class Net(nn.Module):
    """Works on 8 x 8 patches, so that the full-size output stays cheap."""

    def __init__(self):
        super().__init__()
        self.patches = nn.PixelUnshuffle(8)
        self.encode, self.mix = nn.Linear(64, 16), nn.Linear(16, 64)
        self.decode = nn.PixelShuffle(8)

    def forward(self, x):
        patches = self.patches(x).permute(0, 2, 3, 1)
        return self.decode(self.mix(F.relu(self.encode(patches))).permute(0, 3, 1, 2))


def soft_dice_loss(logits, target):
    probability = logits.sigmoid()
    target = target.to(probability.dtype)
    intersection = torch.sum(probability * target)
    cardinality = torch.sum(probability + target)
    return (1 - (2 * intersection + 1) / (cardinality + 1)).float()


model = Net().to(device)
nn.init.constant_(model.mix.bias, 2.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device.type)
rng = torch.Generator(device=device).manual_seed(53)
axis = torch.linspace(-1, 1, SIZE, device=device)
radius = axis[None, :, None] ** 2 + axis[None, None, :] ** 2
count = 0


def batch():
    limit = 0.9 + 0.3 * torch.rand(BATCH, 1, 1, device=device, generator=rng)
    mask = (radius < limit)[:, None]
    noise = torch.randn(BATCH, 1, SIZE, SIZE, device=device, generator=rng)
    return mask.float() + 0.3 * noise, mask


def step():
    global count
    images, masks = batch()
    with torch.autocast(device.type, dtype=torch.float16):
        logits = model(images)
    loss = soft_dice_loss(logits, masks)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    count += 1
    if count % 20 == 0:
        print(count, loss.item(), scaler.get_scale())
