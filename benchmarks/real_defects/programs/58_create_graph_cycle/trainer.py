"""WGAN-GP critic and generator on two-dimensional data."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, Z, LAMBDA = 64, 8, 10.0


def mlp(inp, out):
    return nn.Sequential(nn.Linear(inp, 64), nn.Softplus(), nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, out)).to(device)


critic, generator = mlp(2, 1), mlp(Z, 2)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
rng = torch.Generator(device=device).manual_seed(58)
sums = torch.zeros(2, device=device)
count = 0


def real_points():
    angle = 6.28 * torch.rand(BATCH, device=device, generator=rng)
    ring = torch.stack([angle.cos(), angle.sin()], dim=1)
    return ring + 0.05 * torch.randn(BATCH, 2, device=device, generator=rng)


def fake_points():
    return generator(torch.randn(BATCH, Z, device=device, generator=rng))


def gradient_penalty(real, fake):
    weight = torch.rand(BATCH, 1, device=device, generator=rng)
    x = (weight * real + (1 - weight) * fake).requires_grad_(True)
    critic(x).sum().backward(create_graph=True, inputs=[x])
    slope = x.grad
    length = (slope.pow(2).sum(dim=1) + 1e-12).sqrt()
    return (length - 1).pow(2).mean()


def step():
    global count
    real = real_points()
    with torch.no_grad():
        fake = fake_points()
    critic_loss = critic(fake).mean() - critic(real).mean() + LAMBDA * gradient_penalty(real, fake)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    critic.requires_grad_(False)
    generator_loss = -critic(fake_points()).mean()
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()
    critic.requires_grad_(True)

    sums.add_(torch.stack([critic_loss.detach(), generator_loss.detach()]))
    count += 1
    if count % 50 == 0:
        critic_mean, generator_mean = (sums / 50).tolist()
        print(f"{count}: critic {critic_mean:.3f} generator {generator_mean:.3f}")
        sums.zero_()
