"""DQN with a prioritised replay memory (sum tree)."""
from collections import deque

import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAPACITY, BATCH, OBS, ACTIONS, GAMMA = 4096, 64, 16, 4, 0.97
rng = np.random.default_rng(59)


class SumTree:
    def __init__(self):
        self.start = CAPACITY - 1
        self.nodes = np.zeros(2 * CAPACITY - 1)

    def update(self, indices, values):
        for index, value in zip(indices, values):
            node = index + self.start
            self.nodes[node] = value
            while node > 0:
                node = (node - 1) // 2
                self.nodes[node] = self.nodes[2 * node + 1] + self.nodes[2 * node + 2]

    def find(self, values):
        found = []
        for value in values:
            node = 0
            while node < self.start:
                left = 2 * node + 1
                if value > self.nodes[left]:
                    value -= self.nodes[left]
                    left += 1
                node = left
            found.append(node - self.start)
        return np.array(found)


memory = {"obs": torch.randn(CAPACITY, OBS), "next": torch.randn(CAPACITY, OBS), "action": torch.randint(0, ACTIONS, (CAPACITY, 1))}
memory["reward"] = memory["obs"].gather(1, memory["action"])
tree = SumTree()
tree.update(np.arange(CAPACITY), np.ones(CAPACITY))


def network():
    return nn.Sequential(nn.Linear(OBS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ACTIONS)).to(device)


online, target = network(), network().requires_grad_(False)
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=5e-4, eps=1.5e-4)
pending = deque()  # priorities on their way to the host
count = 0


def sample():
    total = tree.nodes[0]
    values = (np.arange(BATCH) + rng.random(BATCH)) * total / BATCH
    indices = np.clip(tree.find(values), 0, CAPACITY - 1)
    weights = (CAPACITY * tree.nodes[indices + tree.start] / total) ** -0.4
    rows = torch.from_numpy(indices)
    batch = [memory[name][rows] for name in ("obs", "action", "reward", "next")] + [torch.from_numpy((weights / weights.max()).astype(np.float32))]
    if device.type == "cuda":
        batch = [t.pin_memory() for t in batch]
    return indices, [t.to(device, non_blocking=True) for t in batch]


def send_priorities(indices, values):
    """The copy is asynchronous; it is put into the tree two steps later."""
    host = torch.empty(values.shape, pin_memory=device.type == "cuda").copy_(values, non_blocking=True)
    event = torch.cuda.current_stream().record_event() if device.type == "cuda" else None
    pending.append((indices, host, event))
    if len(pending) > 2:
        indices, host, event = pending.popleft()
        if event is not None:
            event.synchronize()
        tree.update(indices, host.numpy())


def step():
    global count
    indices, (obs, action, reward, following, weights) = sample()
    q = online(obs).gather(1, action)
    with torch.no_grad():
        goal = reward + GAMMA * target(following).amax(dim=1, keepdim=True)
    error = (goal - q).squeeze(1)
    loss = (weights * error.pow(2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    send_priorities(indices, (error.detach().abs() + 1e-3).pow(0.5))
    count += 1
    if count % 100 == 0:
        target.load_state_dict(online.state_dict())
        print(count, loss.item())
