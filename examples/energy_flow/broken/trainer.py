"""
Energy Flow, as its owner wrote it: a GRU reads what flows into and out of an energy store,
hour by hour, and tells how much the store holds at the end.

It trains, and it is sick: on a GPU it runs out of memory, on any machine it is slow. Each fault
is numbered where it stands; README.md says what each one does, ../repaired/trainer.py is the same
training without them.

$ python trainer.py                          # trains for a while
$ audit run trainer:step --steps 50          # tells what is wrong
"""

from collections import deque

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
updates_per_epoch = n_sequences // (batch_size * accumulate)
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small: on a busy CPU, threads would mostly wait for each other

# Fault 1: left on after a NaN was hunted long ago.
torch.autograd.set_detect_anomaly(True)


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

    def __len__(self):
        return n_sequences

    def __getitem__(self, i):
        return self.flows[i, : self.lengths[i]], self.levels[i]


dataset = EnergyFlow()

# Fault 2: from here on every new tensor is made on the GPU, the batches of collate_fn too:
# the loader then hands out GPU tensors, copied sequence by sequence, and cannot pin or overlap anything.
torch.set_default_device(device)


def collate_fn(samples):
    """Pad the sequences to one length."""
    lengths = torch.tensor([len(flows) for flows, _ in samples])
    padded = torch.zeros(len(samples), max_hours, n_features)
    for row, (flows, _) in zip(padded, samples):
        row[: len(flows)] = flows
    levels = torch.tensor([level for _, level in samples])
    return padded, lengths, levels


# the sampler draws on the default device, so it wants a generator that lives there
generator = torch.Generator(device=device).manual_seed(seed)
loader = DataLoader(
    dataset, batch_size=batch_size, shuffle=True, drop_last=True, collate_fn=collate_fn, generator=generator
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


model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
criterion = nn.MSELoss()


def endless(loader):
    while True:
        yield from loader


batches = endless(loader)
update = 0
total_loss = 0.0        # of this epoch
states = deque(maxlen=100)      # the latest hidden states, kept to look for spikes


def log(metrics):
    print("  ".join(f"{name} {value}" for name, value in metrics.items()))


def step():
    """One optimizer update from `accumulate` micro-batches."""
    global update, total_loss

    # Fault 3: the peak is reset on every step, though nobody is profiling.
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()

    if update % updates_per_epoch == 0:
        total_loss = 0.0

    # Fault 4: gradients are filled with zeros and added to, rather than dropped and written.
    optimizer.zero_grad(set_to_none=False)

    for _ in range(accumulate):
        flows, lengths, levels = next(batches)
        predicted, hidden = model(flows, lengths)
        loss = criterion(predicted, levels) / accumulate

        # Fault 5: the host waits for the device before it may even start the backward pass.
        if torch.isnan(loss):
            raise RuntimeError(f"loss is NaN at update {update}")

        # Fault 6: each forward builds a graph of its own; keeping this one serves nothing.
        loss.backward(retain_graph=True)

        # Fault 7: the sum is part of every graph of the epoch, and so keeps all of them alive.
        total_loss += loss

    grad_norm = clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    update += 1

    # Fault 8: everything is read back to the host, on every step, and each read is a wait.
    states.append(hidden.detach().cpu())
    log({
        "update": update,
        "loss": loss.item() * accumulate,
        "epoch_loss": total_loss.item() / ((update - 1) % updates_per_epoch + 1),
        "grad_norm": grad_norm.item(),
        "hidden_mean": hidden.detach().mean(dim=0)[:4].tolist(),
    })


if __name__ == "__main__":
    for _ in range(4 * updates_per_epoch):
        step()
