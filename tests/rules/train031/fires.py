import torch
from torch import nn
from torch.distributions import Categorical, Normal

from tests.rules.programs import losses, optimized


class _Rollout:
    """A policy, and what it did in 12 steps of 8 environments."""

    def __init__(self, lr=1e-3, outputs=3):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs))
        _, self.optimizer = optimized(self.net, lr=lr)

    def dist(self, obs):
        return Categorical(logits=self.net(obs))

    def log_prob(self, obs, act):
        return self.dist(obs).log_prob(act)

    @torch.no_grad()
    def collect(self):
        self.obs = torch.randn(12, 8, 4)
        self.act = self.dist(self.obs).sample()
        self.adv = torch.randn(12, 8).flatten()
        self.old = self.log_prob(self.obs, self.act)
        self.obs, self.act = self.obs.flatten(0, 1), self.act.flatten(0, 1)

    def update(self, new, old, adv):
        ratio = (new - old).exp()
        loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class _Gaussian(_Rollout):
    def dist(self, obs):
        return Normal(self.net(obs), 0.5)

    def log_prob(self, obs, act):
        return self.dist(obs).log_prob(act).sum(-1)


def by_position_beside_a_permutation():
    run = _Rollout()

    def step():
        run.collect()
        old, order = run.old.flatten(), torch.randperm(96)
        for start in range(0, 96, 32):
            index = order[start : start + 32]
            kept = old[start : start + 32]  # TRAIN031
            run.update(run.log_prob(run.obs[index], run.act[index]), kept, run.adv[index])

    return step


def environments_first_beside_steps_first():
    run = _Gaussian()

    def step():
        run.collect()
        old = run.old.transpose(0, 1).flatten()
        index = torch.randperm(96)[:48]
        kept = old[index]  # TRAIN031
        run.update(run.log_prob(run.obs[index], run.act[index]), kept, run.adv[index])

    return step


def old_ones_that_follow_the_policy():
    run = _Gaussian()

    def step():
        run.collect()
        old = run.dist(run.obs).log_prob(run.act).sum(-1)  # TRAIN031
        new = run.dist(run.obs).log_prob(run.act).sum(-1)
        run.update(new, old, run.adv)

    return step


def both_made_by_one_function():
    run = _Rollout()

    def step():
        run.collect()
        old, new = (run.log_prob(run.obs, run.act) for _ in range(2))
        ratio = torch.exp(new - old)  # TRAIN031
        (-ratio * run.adv).mean().backward()

    return step


@losses(lambda: nn.Linear(4, 3))
def importance_weights_that_cancel(net):
    x, reward = torch.randn(16, 4), torch.randn(16, 3)
    behavior = net(x).softmax(-1)  # TRAIN031
    now = net(x).softmax(-1)
    return -(now / behavior * reward).mean() - 0.01 * now.log().mean()
