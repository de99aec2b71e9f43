"""PPO update over minibatches of a rollout whose length is not a multiple of the minibatch size."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROLLOUT, MINIBATCH, OBS, ACTIONS, CLIP = 33, 16, 6, 2, 0.2


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ACTIONS))
        self.vf = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.zeros(ACTIONS))

    def log_prob(self, obs, actions):
        z = (actions - self.pi(obs)) * torch.exp(-self.log_std)
        return (-0.5 * z.pow(2) - self.log_std - 0.9189385).sum(dim=1)


policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, eps=1e-5)
rng = torch.Generator(device=device).manual_seed(35)
updates = 0


@torch.no_grad()
def collect():
    obs = torch.randn(ROLLOUT, OBS, device=device, generator=rng)
    noise = torch.randn(ROLLOUT, ACTIONS, device=device, generator=rng)
    actions = policy.pi(obs) + policy.log_std.exp() * noise
    returns = -(actions - obs[:, :ACTIONS]).pow(2).sum(dim=1)
    return obs, actions, policy.log_prob(obs, actions), returns, returns - policy.vf(obs).squeeze(1)


def step():
    global updates
    obs, actions, old_log_prob, returns, advantages = collect()
    order = torch.randperm(ROLLOUT, device=device, generator=rng)
    for index in order.split(MINIBATCH):
        advantage = advantages[index]
        if len(index) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(policy.log_prob(obs[index], actions[index]) - old_log_prob[index])
        surrogate = torch.minimum(advantage * ratio, advantage * ratio.clamp(1 - CLIP, 1 + CLIP))
        value_loss = (returns[index] - policy.vf(obs[index]).squeeze(1)).pow(2).mean()
        loss = -surrogate.mean() + 0.5 * value_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
    updates += 1
    if updates % 20 == 0:
        print(f"update {updates}: last loss {loss.item():.4f}, mean return {returns.mean().item():.3f}")
