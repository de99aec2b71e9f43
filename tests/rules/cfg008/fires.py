import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import trained_by


def class_weights_from_numpy():
    model, weights = nn.Linear(8, 4), torch.from_numpy(np.linspace(0.5, 1.0, 4))
    x, y = torch.ones(16, 8), torch.zeros(16, dtype=torch.long)

    def loss():
        each = F.cross_entropy(model(x), y, reduction="none")
        chosen = weights[y]  # CFG008
        return (each * chosen).mean()

    return trained_by(model, loss)


def targets_that_a_dataset_never_converted():
    model = nn.Linear(8, 1)
    data = TensorDataset(torch.ones(64, 8), torch.from_numpy(np.ones((64, 1))))
    batches = iter(DataLoader(data, batch_size=16, sampler=[i % 64 for i in range(6400)]))

    def loss():
        x, y = next(batches)  # CFG008
        return (model(x) - y).square().mean()

    return trained_by(model, loss)


def loss_in_double_as_a_note():
    model, y = nn.Linear(8, 4), torch.zeros(16, dtype=torch.long)
    return trained_by(model, lambda: F.cross_entropy(model(torch.ones(16, 8)).double(), y))  # CFG008


def the_whole_program_as_a_note_without_a_line():
    model = nn.Linear(8, 4).double()
    x = torch.ones(16, 8, dtype=torch.float64)
    return trained_by(model, lambda: model(x).square().mean())


def targets_moved_to_the_gpu__rehearsal():
    model = nn.Linear(8, 1).cuda()
    target = np.ones((16, 1))
    x = torch.ones(16, 8, device="cuda")

    def loss():
        y = torch.from_numpy(target).cuda()  # CFG008
        return (model(x) - y).square().mean()

    return trained_by(model, loss)


def a_window_in_a_buffer():
    class Windowed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.from_numpy(np.hanning(8)))
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            return self.layer(x) * self.window  # CFG008

    model, x = Windowed(), torch.ones(16, 8)
    return trained_by(model, lambda: model(x).square().mean())


def batches_in_float64_that_are_cast_behind_the_copy__rehearsal():
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(1280, 512)))
    model = nn.Linear(512, 1).cuda()
    batches = iter(DataLoader(TensorDataset(rows), batch_size=32, pin_memory=True))

    def loss():
        (x,) = next(batches)
        x = x.cuda(non_blocking=True).float()  # CFG008
        return model(x).square().mean()

    return trained_by(model, loss)
