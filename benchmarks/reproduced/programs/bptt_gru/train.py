"""Truncated BPTT on a long multivariate sensor series (GRU forecaster)."""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)


def fix_seeds(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)


def sensor_series(length, channels, lanes):
    t = np.arange(length)[:, None, None]
    period = np.random.uniform(12, 90, size=(1, lanes, channels))
    phase = np.random.uniform(0, 6.28, size=(1, lanes, channels))
    drift = np.cumsum(np.random.normal(0, 0.02, size=(length, lanes, channels)), 0)
    x = np.sin(6.28 * t / period + phase) + drift + np.random.normal(0, 0.05, size=(length, lanes, channels))
    x = (x - x.mean(0)) / x.std(0)
    return torch.tensor(x, dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, ch, hid):
        super().__init__()
        self.inp = nn.Linear(ch, hid)
        self.rnn = nn.GRU(hid, hid, num_layers=2, dropout=0.1)
        self.head = nn.Linear(hid, ch)

    def forward(self, x, h=None):
        y, h = self.rnn(torch.tanh(self.inp(x)), h)
        return x + self.head(y), h


class WindowPlanner:
    """Keeps the wall time of one update near `budget` ms, whatever the host."""

    def __init__(self, first, lo, hi, budget, momentum=0.5):
        self.window = first
        self.lo, self.hi, self.budget = lo, hi, budget
        self.momentum = momentum
        self.ms_per_tick = None

    def update(self, ticks, seconds):
        cost = 1000.0 * seconds / ticks
        if self.ms_per_tick is None:
            self.ms_per_tick = cost
        else:
            self.ms_per_tick += (1 - self.momentum) * (cost - self.ms_per_tick)
        want = int(self.budget / self.ms_per_tick)
        self.window = max(self.lo, min(self.hi, want))


class Runner:
    def __init__(self, a):
        self.a = a
        self.series = sensor_series(8000, a.channels, a.lanes)
        self.model = Forecaster(a.channels, a.hidden)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=a.lr)
        self.crit = nn.SmoothL1Loss()
        self.plan = WindowPlanner(a.window, 16, 400, a.budget_ms)

    def step(self, pos, h):
        n = self.plan.window
        x = self.series[pos:pos + n]
        y = self.series[pos + 1:pos + n + 1]
        tic = time.perf_counter()
        pred, h = self.model(x, h)
        loss = self.crit(pred, y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.plan.update(n, time.perf_counter() - tic)
        return loss.item(), pos + n, h.detach()

    def run(self):
        pos, h = 0, None
        self.model.train()
        for i in range(self.a.steps):
            if pos + self.plan.window + 1 > len(self.series):
                pos, h = 0, None
            loss, pos, h = self.step(pos, h)
            print(f"{i:3d} loss {loss:.7f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=99)
    p.add_argument("--channels", type=int, default=6)
    p.add_argument("--lanes", type=int, default=8)
    p.add_argument("--hidden", type=int, default=40)
    p.add_argument("--window", type=int, default=64)
    p.add_argument("--budget-ms", type=float, default=100.0)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--lr", type=float, default=3e-3)
    a = p.parse_args()
    fix_seeds(a.seed)
    Runner(a).run()


if __name__ == "__main__":
    main()
