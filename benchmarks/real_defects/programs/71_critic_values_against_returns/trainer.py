"""PPO on action chunks of a small vision-less manipulation policy."""
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(7)
OBS, ACTION, CHUNK, ENVS = 24, 4, 5, 64
CLIP, VALUE_CLIP, HUBER_DELTA = 0.2, 0.2, 10.0


class ValueHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, features):
        return self.layers(features).squeeze(-1)


class ActorCritic(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.mean = nn.Linear(width, CHUNK * ACTION)
        self.log_std = nn.Parameter(torch.full((CHUNK * ACTION,), -0.5))
        self.value_head = ValueHead(width)

    def forward(self, obs):
        features = self.trunk(obs)
        return Normal(self.mean(features), self.log_std.exp()), self.value_head(features)


def huber(error, delta):
    small = error.abs() <= delta
    return torch.where(small, 0.5 * error**2, delta * (error.abs() - 0.5 * delta))


def critic_loss(values, returns, prev_values):
    clipped = prev_values + (values - prev_values).clamp(-VALUE_CLIP, VALUE_CLIP)
    loss = torch.max(huber(returns - values, HUBER_DELTA), huber(returns - clipped, HUBER_DELTA))
    return loss.mean()


def actor_loss(logprobs, old_logprobs, advantages):
    ratio = (logprobs - old_logprobs).exp()
    return -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()


goal = torch.randn(OBS, CHUNK * ACTION) / OBS**0.5


def rollout(policy):
    """One chunk for each environment; rewards and values are kept as (env, 1)."""
    with torch.no_grad():
        obs = torch.randn(ENVS, OBS)
        dist, values = policy(obs)
        actions = dist.sample()
        values = values.reshape(ENVS, 1)
        rewards = 3 + obs[:, :1] - (actions - obs @ goal).pow(2).mean(-1, keepdim=True)
        advantages = rewards - values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        return {
            "obs": obs,
            "actions": actions,
            "logprobs": dist.log_prob(actions).sum(-1, keepdim=True),
            "prev_values": values,
            "returns": rewards,
            "advantages": advantages,
        }


policy = ActorCritic()
optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-4)


def step():
    batch = rollout(policy)
    dist, values = policy(batch["obs"])
    logprobs = dist.log_prob(batch["actions"]).sum(-1, keepdim=True)
    loss = actor_loss(logprobs, batch["logprobs"], batch["advantages"])
    loss = loss + 0.5 * critic_loss(values, batch["returns"], batch["prev_values"])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
