"""Learning a Lyapunov function for a pendulum-like system."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STATES, BATCH, EPSILON, DT = 2, 10, 0.1, 0.05

lyapunov = nn.Sequential(nn.Linear(STATES, 32), nn.LeakyReLU(0.1), nn.Linear(32, 32), nn.LeakyReLU(0.1), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.Adam(lyapunov.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(27)
weight = nn.Parameter(0.1 * torch.eye(STATES, device=device))
optimizer.add_param_group({"params": [weight]})
origin = torch.zeros(1, STATES, device=device)
running = torch.zeros((), device=device)
count = 0


def dynamics(x):
    theta, omega = x[..., 0], x[..., 1]
    return torch.stack([theta + DT * omega, omega - DT * (torch.sin(theta) + 0.5 * omega)], dim=-1)


def value(x):
    """V of the states x (n x 2)."""
    return (lyapunov(x) - lyapunov(origin)).squeeze(1) + (x @ weight.t()).abs().sum(dim=1)


def derivative_loss(states):
    loss = torch.zeros((), device=device)
    for i in range(states.size(0)):
        x = states[i:i + 1]
        now = value(x)
        following = value(dynamics(x))
        change = following - now + EPSILON * now
        loss = loss + torch.relu(change).squeeze(0)
    return loss / states.size(0)


def positivity_loss(states):
    return torch.relu(EPSILON * states.abs().sum(dim=1) - value(states)).mean()


def step():
    global count
    states = (torch.rand(BATCH, STATES, device=device, generator=rng) - 0.5) * 3
    loss = derivative_loss(states) + positivity_loss(states)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, running.item() / 50)
        running.zero_()
