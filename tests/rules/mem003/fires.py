import functools
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.rules.programs import endless, on_samples, optimized


def batches_kept_on_the_host():
    model, seen = nn.Linear(8, 1), []

    def step():
        model(torch.ones(4, 8)).mean().backward()
        seen.append(torch.ones(1500, 1000))  # MEM003

    return step


def tensors_kept_on_the_device__rehearsal():
    model, optimizer = optimized(torch.nn.Linear(64, 64, device="cuda"), torch.optim.AdamW)
    kept = []

    def step():
        optimizer.zero_grad()
        out = model(torch.ones(4096, 64, device="cuda"))
        out.square().mean().backward()
        optimizer.step()
        kept.append(out.detach().clone())  # MEM003

    return step


def detached_outputs_in_a_dictionary_of_lists__rehearsal():
    from collections import defaultdict

    class Monitor:
        def __init__(self):
            self.history = defaultdict(list)

        def update(self, **tensors):
            for name, tensor in tensors.items():
                self.history[name].append(tensor.detach())  # MEM003

    model, monitor = nn.Linear(512, 512).cuda(), Monitor()

    def step():
        out = model(torch.ones(128, 512, device="cuda"))
        out.mean().backward()
        monitor.update(out=out)

    return step


def memory_of_segments_handed_back_longer__rehearsal():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

        def forward(self, x, mems):
            kept = []
            for layer, mem in zip(self.layers, mems, strict=True):
                kept.append(torch.cat([mem, x.detach()], dim=1))
                x = x + layer(x) + mem.mean(1, keepdim=True)
            return x, kept

    model = Recurrent().cuda()
    mems = [torch.zeros(4, 8, 32, device="cuda") for _ in range(2)]

    def step():
        nonlocal mems
        out, mems = model(torch.ones(4, 8, 32, device="cuda"), mems)  # MEM003
        out.square().mean().backward()

    return step


def a_bank_on_the_host_put_behind_itself():
    class Bank:
        def __init__(self):
            self.keys = torch.randn(256, 32)

        def push(self, keys):
            self.keys = torch.cat([self.keys, keys])  # MEM003

    model, bank = nn.Linear(8, 32), Bank()

    def step():
        out = model(torch.ones(16, 8))
        (out @ bank.keys.T).mean().backward()
        bank.push(out.detach())

    return step


def outputs_copied_to_the_host__rehearsal():
    class Log:
        def __init__(self):
            self.outputs_seen = []

        def see(self, out):
            self.outputs_seen.append(out.detach().cpu())  # MEM003

    model, log = nn.Linear(64, 128).cuda(), Log()

    def step():
        out = model(torch.ones(64, 64, device="cuda"))
        out.mean().backward()
        log.see(out)

    return step


def batches_of_a_cycled_loader():
    labelled, model = TensorDataset(torch.rand(400, 16, 1000)), nn.Linear(1000, 1)
    batches = itertools.cycle(DataLoader(labelled, batch_size=4))  # MEM003
    return lambda: model(next(batches)[0]).mean().backward()


def arrays_kept_on_the_host():
    class Log:
        def __init__(self):
            self.arrays = []

    model, log = nn.Linear(64, 64), Log()

    def step():
        out = model(torch.ones(64, 64))
        out.mean().backward()
        log.arrays.append(out.detach().numpy())  # MEM003

    return step


def images_of_a_cache_without_a_limit__note():
    class Images:
        @functools.lru_cache(maxsize=None)  # MEM003
        def shifted(self, index, by):
            return torch.ones(64, 64) * index + by

    images, model, steps = Images(), nn.Linear(64, 8), itertools.count()
    return lambda: model(images.shifted(0, next(steps))).mean().backward()


def samples_kept_by_the_workers_of_a_loader():
    class Samples(Dataset):
        def __init__(self):
            self.hoard = []

        def __len__(self):
            return 400

        def __getitem__(self, index):
            sample = torch.full((8,), float(index))
            self.hoard.append(sample.repeat(100))  # MEM003
            return sample

    return on_samples(Samples())


def transform_of_a_dataset_that_keeps_what_it_drew():
    class Shifts:
        def __init__(self):
            self.offsets = []

        def __call__(self, sample):
            shift = torch.rand(200)
            self.offsets.append(shift)  # MEM003
            return sample + shift[0]

    class Samples(Dataset):
        def __init__(self, transform):
            self.transform = transform

        def __len__(self):
            return 400

        def __getitem__(self, index):
            return self.transform(torch.ones(8))

    return on_samples(Samples(Shifts()))


def cache_of_a_worker_that_never_hits():
    class Samples(Dataset):
        def __init__(self):
            self.resampled = {}

        def __len__(self):
            return 16

        def __getitem__(self, index):
            key = index, torch.rand(()).item()
            if key not in self.resampled:
                self.resampled[key] = torch.ones(800)  # MEM003
            return self.resampled[key][:8]

    return on_samples(Samples())


def crops_kept_by_where_they_were_cut():
    class Windows(Dataset):
        def __init__(self):
            self.cut = {}

        def __len__(self):
            return 24

        def _window(self, index, begin):
            key = index, begin
            if key not in self.cut:
                row = torch.arange(4000.0) * index
                self.cut[key] = row[begin : begin + 400].clone()  # MEM003
            return self.cut[key]

        def __getitem__(self, index):
            return self._window(index, torch.randint(3600, ()).item())[:8]

    return _fetched_here(Windows())


def _fetched_here(dataset):
    batches, model = endless(DataLoader(dataset, 4, shuffle=True)), nn.Linear(8, 1)

    def step():
        model(next(batches)).mean().backward()

    return step


def outputs_of_an_epoch_that_nothing_clears__note():
    class Epochs:
        def __init__(self):
            self.model, self.taken, self.train_outputs = nn.Linear(8, 1), 0, []

        def ended(self):
            together = torch.cat([out for out, _ in self.train_outputs])
            self.spread = together.std().item()

        def step(self):
            x = torch.randn(128, 8)
            out = self.model(x)
            out.square().mean().backward()
            self.train_outputs.append((out.detach(), x[:, 0]))  # MEM003
            self.taken += 1
            if self.taken % 4 == 0:
                self.ended()

    return Epochs().step
