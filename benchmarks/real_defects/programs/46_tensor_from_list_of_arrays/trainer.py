"""Vocoder training: the collater cuts waveforms and mel frames."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HOP, FRAMES, MELS, BATCH = 64, 8, 20, 6


class Speech(Dataset):
    def __init__(self, size=400):
        rng = np.random.default_rng(46)
        self.mels = [rng.standard_normal((rng.integers(20, 40), MELS), dtype=np.float32) for _ in range(size)]
        self.waves = [np.repeat(m.mean(axis=1), HOP) for m in self.mels]

    def __len__(self):
        return len(self.mels)

    def __getitem__(self, index):
        return self.waves[index], self.mels[index]


class Collater:
    def __call__(self, batch):
        y_batch, c_batch = [], []
        for wave, mel in batch:
            start = torch.randint(len(mel) - FRAMES + 1, ()).item()
            c_batch.append(mel[start:start + FRAMES].T)
            y_batch.append(wave[start * HOP:(start + FRAMES) * HOP])
        y = torch.tensor(y_batch, dtype=torch.float).unsqueeze(1)
        c = torch.tensor(c_batch, dtype=torch.float)
        return y, c


loader = DataLoader(Speech(), batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=Collater(), num_workers=2,
                    persistent_workers=True, pin_memory=device.type == "cuda")


def endless():
    while True:
        yield from loader


stream = endless()
generator = nn.Sequential(nn.Conv1d(MELS, 32, 3, padding=1), nn.LeakyReLU(0.2), nn.Upsample(scale_factor=HOP),
                          nn.Conv1d(32, 16, 9, padding=4), nn.LeakyReLU(0.2), nn.Conv1d(16, 1, 9, padding=4), nn.Tanh()).to(device)
optimizer = torch.optim.RAdam(generator.parameters(), lr=1e-3)
window = torch.hann_window(128, device=device)
count = 0


def magnitude(x):
    spectrum = torch.stft(x.squeeze(1), 128, 64, window=window, return_complex=True)
    return (spectrum.real.pow(2) + spectrum.imag.pow(2) + 1e-7).sqrt()


def step():
    global count
    y, c = next(stream)
    y, c = y.to(device, non_blocking=True), c.to(device, non_blocking=True)
    y_hat = generator(c)
    loss = F.l1_loss(y_hat, y) + F.l1_loss(magnitude(y_hat).log(), magnitude(y).log())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
