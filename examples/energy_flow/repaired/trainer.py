"""
Energy Flow, repaired: a GRU reads what flows into and out of an energy store, hour by hour,
and tells how much the store holds at the end.

The same data, the same model, the same losses to the last bit on a CPU as ../broken/trainer.py,
without its faults.

$ python trainer.py                          # trains for a while
$ audit run trainer:step --steps 50          # has nothing to say
"""

import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

# -----------------------------------------------------------------------------
# data
n_sequences = 4096
min_hours, max_hours = 8, 16
n_features = 4          # inflow, outflow, and the hour of the day as sine and cosine
# model
n_hidden = 128
# training
batch_size = 16         # the micro-batch
accumulate = 2          # micro-batches for each optimizer update
learning_rate = 3e-3
grad_clip = 1.0
log_interval = 50       # updates
updates_per_epoch = n_sequences // (batch_size * accumulate)
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small: on a busy CPU, threads would mostly wait for each other
# Anomaly mode is off. To hunt a NaN: `with torch.autograd.detect_anomaly(): step()`, then take it out again.


class EnergyFlow(Dataset):
    """Sequences of hourly flows, each of its own length, with what the store holds after the last hour."""

    def __init__(self):
        hours = torch.arange(max_hours)
        clock = torch.stack([torch.sin(hours * torch.pi / 12), torch.cos(hours * torch.pi / 12)], dim=1)
        moved = torch.rand(n_sequences, max_hours, 2)
        self.flows = torch.cat([moved, clock.expand(n_sequences, -1, -1)], dim=2)
        lengths = torch.randint(min_hours, max_hours + 1, (n_sequences,))
        level, levels = torch.zeros(n_sequences), []
        for hour in range(max_hours):   # the store leaks, and loses a little on the way in and out
            level = 0.9 * level + 0.9 * moved[:, hour, 0] - moved[:, hour, 1] / 0.9
            levels.append(level)
        self.levels = torch.stack(levels, dim=1)[torch.arange(n_sequences), lengths - 1].tolist()
        self.lengths = lengths.tolist()
        # data is checked once, here, and not on every step
        if not (self.flows.isfinite().all() and torch.tensor(self.levels).isfinite().all()):
            raise ValueError("the data holds NaN or Inf")

    def __len__(self):
        return n_sequences

    def __getitem__(self, i):
        return self.flows[i, : self.lengths[i]], self.levels[i]


dataset = EnergyFlow()


def collate_fn(samples):
    """Pad the sequences to one length, on the CPU: the loader pins the batch, the step moves it."""
    lengths = torch.tensor([len(flows) for flows, _ in samples])
    padded = torch.zeros(len(samples), max_hours, n_features)
    for row, (flows, _) in zip(padded, samples):
        row[: len(flows)] = flows
    levels = torch.tensor([level for _, level in samples])
    return padded, lengths, levels


loader = DataLoader(
    dataset, batch_size=batch_size, shuffle=True, drop_last=True, collate_fn=collate_fn,
    generator=torch.Generator().manual_seed(seed), pin_memory=device.type == "cuda"
)


class Forecaster(nn.Module):

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(n_features, n_hidden, batch_first=True)
        self.head = nn.Linear(n_hidden, 1)

    def forward(self, flows, lengths):
        outputs, _ = self.gru(flows)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, n_hidden)
        hidden = outputs.gather(1, last).squeeze(1)      # the state after the last real hour
        return self.head(hidden).squeeze(1), hidden


model = Forecaster().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
criterion = nn.MSELoss()


def endless(loader):
    while True:
        yield from loader


batches = endless(loader)
update = 0
total_loss = torch.zeros((), device=device)             # since the last log, summed on the device

if device.type == "cuda":
    torch.cuda.reset_peak_memory_stats()                # once: the peak from here on is the training's


def log(loss, grad_norm, hidden):
    """One line of metrics. This is where the host waits for the device, and the only place."""
    mean, peak = total_loss.item() / log_interval, hidden.abs().max().item()
    print(f"update {update}  loss {loss.item():.4f}  mean_loss {mean:.4f}  "
          f"grad_norm {grad_norm.item():.3f}  hidden_peak {peak:.3f}")
    # a NaN stays in the sum, so it is noticed here at most one interval late
    if mean != mean:
        raise RuntimeError(f"loss became NaN between update {update - log_interval} and {update}")
    total_loss.zero_()


def step():
    """One optimizer update from `accumulate` micro-batches."""
    global update
    optimizer.zero_grad()

    for _ in range(accumulate):
        flows, lengths, levels = (part.to(device, non_blocking=True) for part in next(batches))
        predicted, hidden = model(flows, lengths)
        loss = criterion(predicted, levels) / accumulate
        loss.backward()
        total_loss.add_(loss.detach())                  # the number, without its graph

    grad_norm = clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    update += 1

    if update % log_interval == 0:
        log(loss.detach() * accumulate, grad_norm, hidden.detach())


if __name__ == "__main__":
    for _ in range(4 * updates_per_epoch):
        step()
