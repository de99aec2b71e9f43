"""Behaviour cloning from short clips; decoded clips are cached by the dataset."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPISODES, FRAMES, SIDE, BATCH, ACTIONS = 20000, 16, 32, 8, 6


def decode(episode):
    """Stands for a video decoder: frames and actions of an episode."""
    rng = np.random.default_rng(episode)
    frames = rng.integers(0, 256, (FRAMES, 3, SIDE, SIDE), dtype=np.uint8)
    return frames, frames.mean(axis=(2, 3)).repeat(2, axis=1).astype(np.float32) / 255


class DecoderCache:
    def __init__(self):
        self.clips = {}

    def get(self, episode):
        if episode not in self.clips:
            self.clips[episode] = decode(episode)
        return self.clips[episode]


class Demonstrations(Dataset):
    def __init__(self):
        self.cache = DecoderCache()

    def __len__(self):
        return EPISODES * FRAMES

    def __getitem__(self, index):
        episode, frame = divmod(index, FRAMES)
        frames, actions = self.cache.get(episode)
        return torch.from_numpy(frames[frame]), torch.from_numpy(actions[frame])


loader = DataLoader(Demonstrations(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2,
                    persistent_workers=True, pin_memory=device.type == "cuda")


def endless():
    while True:
        yield from loader


stream = endless()
policy = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                       nn.Flatten(), nn.Linear(128, ACTIONS)).to(device)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
count = 0


def step():
    global count
    frames, actions = next(stream)
    frames = frames.to(device, non_blocking=True).float() / 255
    actions = actions.to(device, non_blocking=True)
    loss = F.l1_loss(policy(frames), actions)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
