"""Parameter inference from noisy waveforms (neural posterior)."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SAMPLES, BATCH = 512, 32


class Waveforms(Dataset):
    def __init__(self, size=2048):
        rng = np.random.default_rng(25)
        self.parameters = rng.uniform(0.5, 2.0, size=(size, 2)).astype(np.float32)
        self.time = np.linspace(0.0, 1.0, SAMPLES, dtype=np.float32)
        self.window = np.hanning(SAMPLES)

    def __len__(self):
        return len(self.parameters)

    def __getitem__(self, index):
        amplitude, frequency = self.parameters[index]
        signal = amplitude * np.sin(np.float32(40.0) * frequency * self.time)
        rng = np.random.default_rng(torch.randint(2 ** 31, ()).item())
        strain = (signal + rng.standard_normal(SAMPLES)) * self.window
        return torch.from_numpy(strain), torch.from_numpy(self.parameters[index])


loader = DataLoader(Waveforms(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2,
                    persistent_workers=True, pin_memory=device.type == "cuda")


def endless():
    while True:
        yield from loader


stream = endless()
model = nn.Sequential(nn.Linear(SAMPLES, 128), nn.ELU(), nn.Linear(128, 64), nn.ELU(), nn.Linear(64, 4)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
total = torch.zeros((), device=device)
count = 0


def step():
    global count
    strain, parameters = next(stream)
    strain = strain.to(device, non_blocking=True).float()
    parameters = parameters.to(device, non_blocking=True)
    mean, log_std = model(strain).chunk(2, dim=1)
    log_std = log_std.clamp(-5, 3)
    loss = (0.5 * ((parameters - mean) * torch.exp(-log_std)).pow(2) + log_std).sum(dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total.add_(loss.detach())
    count += 1
    if count % 60 == 0:
        print(count, total.item() / 60)
        total.zero_()
