"""Recurrent actor-critic learner on stored rollouts."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROLLOUT, ENVS, OBS, HIDDEN, ACTIONS, GAMMA = 20, 8, 12, 48, 4, 0.97


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(OBS, HIDDEN), nn.ELU())
        self.core = nn.GRUCell(HIDDEN, HIDDEN)
        self.policy = nn.Linear(HIDDEN, ACTIONS)
        self.value = nn.Linear(HIDDEN, 1)

    def forward(self, obs, state):
        x = self.encoder(obs)
        outputs = []
        for t in range(x.size(0)):
            state = self.core(x[t], state)
            outputs.append(state)
        x = torch.stack(outputs)
        return self.policy(x), self.value(x).squeeze(-1)


model = ActorCritic().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-6)
rng = torch.Generator(device=device).manual_seed(28)
decay = GAMMA ** torch.arange(ROLLOUT, device=device, dtype=torch.float32)
discount = torch.triu(decay[None, :] / decay[:, None])
updates = 0


def rollout():
    obs = torch.randn(ROLLOUT, ENVS, OBS, device=device, generator=rng)
    actions = torch.randint(0, ACTIONS, (ROLLOUT, ENVS), device=device, generator=rng)
    rewards = (actions == obs[..., :ACTIONS].argmax(dim=-1)).float()
    state = torch.zeros(ENVS, HIDDEN, device=device)
    return obs, actions, rewards, state


def step():
    global updates
    obs, actions, rewards, state = rollout()
    returns = discount @ rewards
    logits, values = model(obs, state)
    log_probs = F.log_softmax(logits, dim=-1)
    chosen = log_probs.gather(-1, actions[..., None]).squeeze(-1)
    advantage = returns - values.detach()
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1).mean()
    loss = -(chosen * advantage).mean() + 0.5 * F.mse_loss(values, returns) - 0.003 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 4.0)
    optimizer.step()
    updates += 1
    if updates % 50 == 0:
        print(updates, loss.item())
