"""
QC, repaired: an agent stands at a production line, sees the sensors of one part after the other,
and lets it pass, scraps it, or pays for a closer look. One episode is a run of parts, one update an episode.

The same data, agent and losses to the last bit on a CPU as ../broken/trainer.py, without its faults.

$ python trainer.py                                   # trains for a while
$ audit run trainer:step --steps 50                   # has nothing to say
$ audit drill trainer:step --inject oom@12            # retried, and equal to an undisturbed run
"""

import os
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

# -----------------------------------------------------------------------------
# the line
n_lines = 32            # lines that are watched side by side
n_parts = 24            # parts of one episode
n_sensors = 12
defect_rate = 0.3
look_cost = 0.1         # of a closer look, where a wrong decision costs 1
# the agent
n_hidden = 64
n_actions = 3           # pass, scrap, look closer
# training
learning_rate = 1e-3
grad_clip = 1.0
value_weight, entropy_weight = 0.5, 0.01
n_episodes = 2000
log_interval = 50
save_interval = 500
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small


class Inspector(nn.Module):
    """Sees one part after the other and remembers the line."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(n_sensors, n_hidden)
        self.policy = nn.Linear(n_hidden, n_actions)
        self.value = nn.Linear(n_hidden, 1)

    def forward(self, sensors, hidden):
        hidden = self.cell(sensors, hidden)
        return F.log_softmax(self.policy(hidden), dim=1), self.value(hidden).squeeze(1), hidden


agent = Inspector().to(device)
optimizer = torch.optim.AdamW(agent.parameters(), lr=learning_rate)
signature = torch.randn(n_sensors, device=device)       # what a defect does to the sensors


def draw():
    """The parts of one episode: their sensors, which are bad, and the noise that the agent samples with."""
    bad = torch.rand(n_parts, n_lines, device=device) < defect_rate
    sensors = torch.randn(n_parts, n_lines, n_sensors, device=device) + 0.4 * bad.unsqueeze(2) * signature
    gumbel = -torch.log(-torch.log(torch.rand(n_parts, n_lines, n_actions, device=device).clamp(1e-6, 1 - 1e-6)))
    return sensors, bad.float(), gumbel


def play(sensors, bad, gumbel):
    """One episode: the log probabilities of what the agent did, its values, and what it got for it."""
    hidden = torch.zeros(bad.shape[1], n_hidden, device=device)
    log_probs, values, rewards, entropies = [], [], [], []
    for part in range(n_parts):
        log_p, value, hidden = agent(sensors[part], hidden)
        action = (log_p + gumbel[part]).argmax(dim=1, keepdim=True)
        wrong = torch.stack([bad[part], 1 - bad[part], torch.full_like(bad[part], look_cost)], dim=1)
        log_probs.append(log_p.gather(1, action).squeeze(1))
        entropies.append(-(log_p.exp() * log_p).sum(dim=1))
        values.append(value)
        rewards.append(-wrong.gather(1, action).squeeze(1))
    return torch.stack(log_probs), torch.stack(values), torch.stack(rewards), torch.stack(entropies)


replay = deque(maxlen=200)      # numbers only
episode = 0


def save_checkpoint(path):
    """Whole or not at all: a kill in the middle leaves the one before."""
    torch.save({"agent": agent.state_dict(), "optimizer": optimizer.state_dict(), "episode": episode}, path + ".new")
    os.replace(path + ".new", path)


def resume(path):
    global episode
    if os.path.exists(path):
        kept = torch.load(path, map_location=device, weights_only=True)
        agent.load_state_dict(kept["agent"])
        optimizer.load_state_dict(kept["optimizer"])
        episode = kept["episode"]


def attempt(parts, n_splits):
    """Forward and backward from nothing, over all lines or over a few at a time. None where memory ran out."""
    optimizer.zero_grad()
    kept = []
    try:
        for sensors, bad, gumbel in zip(*(tensor.chunk(n_splits, dim=1) for tensor in parts)):
            log_probs, values, rewards, entropies = play(sensors, bad, gumbel)
            advantage = rewards - values.detach()
            loss = -(advantage * log_probs).mean() + value_weight * F.mse_loss(values, rewards)
            loss = (loss - entropy_weight * entropies.mean()) / n_splits
            loss.backward()
            kept.append((log_probs.detach(), rewards))
    except torch.cuda.OutOfMemoryError:
        return None         # with this frame go the exception and all that the attempt held
    return [torch.cat(each, dim=1) for each in zip(*kept)]


def step():
    """One episode. Where memory runs out it is tried again, then in four parts; then what there is is saved."""
    global episode
    parts = draw()
    done = attempt(parts, 1) or attempt(parts, 1) or attempt(parts, 4)
    if done is None:
        save_checkpoint("rescue.pt")
        raise RuntimeError(f"out of memory three times in episode {episode}: see rescue.pt")
    clip_grad_norm_(agent.parameters(), grad_clip)
    optimizer.step()
    replay.append(done)

    episode += 1
    if episode % log_interval == 0:
        print(f"episode {episode}  reward {replay[-1][1].mean().item():.3f}  kept {len(replay)}")
    if episode % save_interval == 0:
        save_checkpoint("last.pt")


resume("last.pt")

if __name__ == "__main__":
    for _ in range(n_episodes - episode):
        step()
