import torch


class Schedule:
    def __init__(self, n_steps=100, lo=1e-4, hi=0.05):
        self.n_steps = n_steps
        self.beta = torch.linspace(lo, hi, n_steps)
        self.abar = torch.cumprod(1.0 - self.beta, dim=0)


class NoiseSource:
    """Timesteps and Gaussian noise from one private stream."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.gen = torch.Generator(device="cpu")
        self.gen.seed()

    def timesteps(self, n):
        return torch.randint(self.schedule.n_steps, (n,), generator=self.gen)

    def like(self, x):
        return torch.randn(x.shape, generator=self.gen)

    def corrupt(self, x0):
        t = self.timesteps(len(x0))
        eps = self.like(x0)
        a = self.schedule.abar[t].unsqueeze(-1)
        return a.sqrt() * x0 + (1 - a).sqrt() * eps, t, eps
