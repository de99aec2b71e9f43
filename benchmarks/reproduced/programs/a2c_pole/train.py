import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

from envs import CartPole, ScaleReward, SyncVec, TimeLimit

torch.set_num_threads(1)


@dataclass
class Args:
    seed: int = 3
    num_envs: int = 6
    horizon: int = 16
    updates: int = 35
    lr: float = 3e-3
    gamma: float = 0.99
    lam: float = 0.95
    ent: float = 0.01
    vf: float = 0.5


def layer(i, o, std=2 ** 0.5):
    m = nn.Linear(i, o)
    nn.init.orthogonal_(m.weight, std)
    nn.init.zeros_(m.bias)
    return m


class ActorCritic(nn.Module):
    def __init__(self, nobs=4, nact=2, h=48):
        super().__init__()
        self.pi = nn.Sequential(layer(nobs, h), nn.Tanh(), layer(h, h), nn.Tanh(), layer(h, nact, 0.01))
        self.vf = nn.Sequential(layer(nobs, h), nn.Tanh(), layer(h, h), nn.Tanh(), layer(h, 1, 1.0))

    def forward(self, x):
        return Categorical(logits=self.pi(x)), self.vf(x).squeeze(-1)


def make_env(limit):
    def thunk():
        return ScaleReward(TimeLimit(CartPole(), limit), 0.1)
    return thunk


def gae(rew, val, done, last, gamma, lam):
    adv, run = torch.zeros_like(rew), 0.0
    for t in reversed(range(rew.size(0))):
        nxt = last if t == rew.size(0) - 1 else val[t + 1]
        delta = rew[t] + gamma * nxt * (1 - done[t]) - val[t]
        run = delta + gamma * lam * (1 - done[t]) * run
        adv[t] = run
    return adv


if __name__ == "__main__":
    args = Args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    envs = SyncVec([make_env(200) for _ in range(args.num_envs)])
    agent = ActorCritic()
    opt = torch.optim.RMSprop(agent.parameters(), lr=args.lr, eps=1e-5)
    obs = torch.from_numpy(envs.reset(seed=args.seed))

    for update in range(1, args.updates + 1):
        store = {k: [] for k in ("obs", "act", "rew", "val", "done")}
        for _ in range(args.horizon):
            with torch.no_grad():
                dist, v = agent(obs)
                act = dist.sample()
            nxt, r, d = envs.step(act.numpy())
            for k, t in zip(store, (obs, act, torch.from_numpy(r), v, torch.from_numpy(d))):
                store[k].append(t)
            obs = torch.from_numpy(nxt)
        b = {k: torch.stack(v) for k, v in store.items()}
        with torch.no_grad():
            last = agent(obs)[1]
            adv = gae(b["rew"], b["val"], b["done"], last, args.gamma, args.lam)
            ret = adv + b["val"]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        dist, v = agent(b["obs"])
        pg = -(dist.log_prob(b["act"]) * adv).mean()
        vl = 0.5 * (v - ret).pow(2).mean()
        loss = pg + args.vf * vl - args.ent * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        print(f"update={update} loss={loss.item():.8f} value={vl.item():.6f} episodes={int(b['done'].sum())}")
