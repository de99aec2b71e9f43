"""Image-to-image translation with several weighted losses."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

PRINT_FREQ = 25
WEIGHTS = {"l1": 10.0, "perceptual": 1.0, "tv": 0.1, "identity": 0.5}


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.InstanceNorm2d(cout), nn.ReLU(True))


generator_net = nn.Sequential(conv(3, 16), conv(16, 16), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()).to(device)
feature_net = nn.Sequential(conv(3, 8), conv(8, 8)).to(device).eval().requires_grad_(False)
optimizer = torch.optim.Adam(generator_net.parameters(), lr=2e-4, betas=(0.5, 0.999))
data_rng = torch.Generator(device=device).manual_seed(3)

loss_log = {name: 0.0 for name in WEIGHTS}
iteration = 0


def sample_pair():
    source = torch.rand(4, 3, 32, 32, device=device, generator=data_rng) * 2 - 1
    target = -source.roll(1, dims=-1)
    return source, target


def compute_losses(source, target):
    fake = generator_net(source)
    losses = {}
    losses["l1"] = F.l1_loss(fake, target)
    with torch.no_grad():
        wanted = feature_net(target)
    losses["perceptual"] = F.mse_loss(feature_net(fake), wanted)
    losses["tv"] = (fake[..., 1:] - fake[..., :-1]).abs().mean() + (fake[..., 1:, :] - fake[..., :-1, :]).abs().mean()
    losses["identity"] = F.l1_loss(generator_net(target), target)
    return losses


def step():
    global iteration
    source, target = sample_pair()
    losses = compute_losses(source, target)
    total = sum(WEIGHTS[name] * value for name, value in losses.items())
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    iteration += 1
    for name, value in losses.items():
        loss_log[name] += float(value)
    if iteration % PRINT_FREQ == 0:
        text = " ".join(f"{name}={value / PRINT_FREQ:.3f}" for name, value in loss_log.items())
        print(iteration, text)
        for name in loss_log:
            loss_log[name] = 0.0
