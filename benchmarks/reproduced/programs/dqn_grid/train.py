# DQN on a windy 6x6 grid. Double-Q target, soft update.
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

SEED = 42
GAMMA = 0.97
BATCH = 32
WARMUP = 120
LEARN_EVERY = 4
GRAD_STEPS = 36

Transition = namedtuple("Transition", "s a r s2 done")


def set_seed(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class WindyGrid:
    MOVES = [(0, 1), (0, -1), (1, 0), (-1, 0)]

    def __init__(self, n=6, seed=0):
        self.n = n
        self.rng = np.random.default_rng(seed)

    def _obs(self):
        v = np.zeros(2 * self.n, dtype=np.float32)
        v[self.x] = 1
        v[self.n + self.y] = 1
        return v

    def reset(self):
        self.x, self.y, self.t = 0, int(self.rng.integers(self.n)), 0
        return self._obs()

    def step(self, a):
        dx, dy = self.MOVES[a]
        if self.rng.random() < 0.15:
            dy -= 1
        self.x = min(max(self.x + dx, 0), self.n - 1)
        self.y = min(max(self.y + dy, 0), self.n - 1)
        self.t += 1
        goal = self.x == self.n - 1 and self.y == self.n - 1
        return self._obs(), 1.0 if goal else -0.02, goal, goal or self.t >= 40


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, k):
        batch = random.sample(self.memory, k)
        s, a, r, s2, d = zip(*batch)
        return (torch.from_numpy(np.stack(s)), torch.tensor(a), torch.tensor(r, dtype=torch.float32),
                torch.from_numpy(np.stack(s2)), torch.tensor(d, dtype=torch.float32))

    def __len__(self):
        return len(self.memory)


class DuelingQ(nn.Module):
    def __init__(self, nin, nact, h=48):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(nin, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.v, self.adv = nn.Linear(h, 1), nn.Linear(h, nact)

    def forward(self, x):
        h = self.body(x)
        adv = self.adv(h)
        return self.v(h) + adv - adv.mean(1, keepdim=True)


class Agent:
    def __init__(self, nin, nact):
        self.nact = nact
        self.q, self.target = DuelingQ(nin, nact), DuelingQ(nin, nact)
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.AdamW(self.q.parameters(), lr=2e-3)
        self.buffer = ReplayBuffer(2000)
        self.eps = 1.0

    @torch.no_grad()
    def act(self, s):
        if np.random.rand() < self.eps:
            return int(np.random.randint(self.nact))
        return int(self.q(torch.from_numpy(s)[None]).argmax())

    def learn(self):
        s, a, r, s2, d = self.buffer.sample(BATCH)
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + GAMMA * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.q(s).gather(1, a[:, None]).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for p, tp in zip(self.q.parameters(), self.target.parameters()):
                tp.lerp_(p, 0.05)
        self.eps = max(0.05, self.eps * 0.98)
        return loss.item()


def main():
    set_seed(SEED)
    env = WindyGrid(seed=SEED)
    agent = Agent(12, 4)
    s, t, done_steps = env.reset(), 0, 0
    while done_steps < GRAD_STEPS:
        a = agent.act(s)
        s2, r, term, stop = env.step(a)
        agent.buffer.push(s, a, r, s2, term)
        s = env.reset() if stop else s2
        t += 1
        if t >= WARMUP and t % LEARN_EVERY == 0:
            loss = agent.learn()
            done_steps += 1
            print(f"env {t:5d}  grad {done_steps:3d}  eps {agent.eps:.3f}  loss {loss:.8f}")


if __name__ == "__main__":
    main()
