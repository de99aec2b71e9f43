import functools
import itertools
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.rules.programs import endless, on_samples, trained_with


def bounded_buffer_that_is_full():
    model, seen = nn.Linear(8, 1), []

    def step():
        model(torch.ones(4, 8)).mean().backward()
        seen.append(torch.ones(500, 1000))
        del seen[:-2]

    return step


def gradients_made_anew_in_each_step__rehearsal():
    model = torch.nn.Linear(1024, 1024, device="cuda")

    def loss():
        return model(torch.ones(64, 1024, device="cuda")).square().mean()

    return trained_with(torch.optim.AdamW(model.parameters()), loss)


def a_memory_of_the_last_rows__rehearsal():
    model, memory = torch.nn.Linear(64, 64, device="cuda"), [torch.zeros(256, 64, device="cuda")]

    def step():
        context = torch.cat([memory[0], torch.ones(64, 64, device="cuda")])
        model(context).square().mean().backward()
        memory[0] = context[-256:].detach()

    return step


def outputs_of_one_step_joined__rehearsal():
    model = torch.nn.Linear(64, 256, device="cuda")

    def step():
        parts = []
        for _ in range(4):
            parts.append(model(torch.ones(64, 64, device="cuda")))
        torch.stack(parts).square().mean().backward()

    return step


def a_replay_memory_that_fills_up__rehearsal():
    class Memory:
        def __init__(self):
            self.rows = []

        def push(self, row):
            self.rows.append(row)
            if len(self.rows) > 1000:
                self.rows.pop(0)

    model, memory = nn.Linear(512, 512).cuda(), Memory()

    def step():
        out = model(torch.ones(128, 512, device="cuda"))
        out.mean().backward()
        memory.push(out.detach())

    return step


def memory_of_segments_that_is_cut__rehearsal():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

        def forward(self, x, mems):
            kept = []
            for layer, mem in zip(self.layers, mems, strict=True):
                kept.append(torch.cat([mem, x.detach()], dim=1)[:, -16:])
                x = x + layer(x) + mem.mean(1, keepdim=True)
            return x, kept

    model = Recurrent().cuda()
    mems = [torch.zeros(4, 8, 32, device="cuda") for _ in range(2)]

    def step():
        nonlocal mems
        out, mems = model(torch.ones(4, 8, 32, device="cuda"), mems)
        out.square().mean().backward()

    return step


def numbers_joined_to_a_tensor():
    model, losses = nn.Linear(8, 1), [torch.zeros(0)]

    def step():
        loss = model(torch.ones(16, 8)).mean()
        loss.backward()
        losses[0] = torch.cat([losses[0], loss.detach()[None]])

    return step


def features_kept_of_each_batch_that_comes_again():
    class Store:
        def __init__(self):
            self.images = torch.randn(4000, 64)
            self.cache = {}

        def of(self, index):
            key = tuple(index.tolist())
            if key not in self.cache:
                self.cache[key] = self.images[index].relu()
            return self.cache[key]

    head, store, waiting = nn.Linear(64, 1), Store(), list(torch.arange(4000).split(8))

    def step():
        index = waiting.pop(0)
        waiting.append(index)
        head(store.of(index)).mean().backward()

    return step


def _replayed(push):
    """A step that keeps 32 KiB."""
    model = nn.Linear(64, 128)

    def step():
        out = model(torch.ones(64, 64))
        out.mean().backward()
        push(out.detach())

    return step


def a_replay_memory_with_a_longest_length__no_note():
    from collections import deque

    class Memory:
        def __init__(self):
            self.latest = deque(maxlen=1000)

        def push(self, row):
            self.latest.append(row)

    return _replayed(Memory().push)


def a_replay_memory_made_before__no_note():
    class Memory:
        def __init__(self):
            self.slots, self.at = torch.zeros(64, 64, 128), 0

        def push(self, row):
            self.slots[self.at % 64] = row
            self.at += 1

    return _replayed(Memory().push)


def a_replay_list_whose_places_are_filled_again__no_note():
    class Memory:
        def __init__(self):
            self.ring, self.at = [], 0

        def push(self, row):
            if len(self.ring) < 1000:
                self.ring.append(row)
            else:
                self.ring[self.at % 1000] = row
            self.at += 1

    return _replayed(Memory().push)


def a_list_cleared_after_each_epoch__no_note():
    class Trainer:
        def __init__(self):
            self.of_epoch = []

        def push(self, row):
            self.of_epoch.append(row)

        def epoch_ends(self):
            self.of_epoch.clear()

    return _replayed(Trainer().push)


def samples_kept_by_their_number__no_note():
    class Store:
        def __init__(self):
            self.by_number, self.number = {}, 0

        def push(self, row):
            self.by_number.setdefault(self.number, row)
            self.number += 1

    return _replayed(Store().push)


def views_of_a_dataset__no_note():
    class Views:
        def __init__(self):
            self.data, self.views = torch.randn(4096, 128), []

        def push(self, row):
            at = 64 * len(self.views)
            self.views.append(self.data[at : at + 64])

    return _replayed(Views().push)


def numbers_of_every_step__no_note():
    class Log:
        def __init__(self):
            self.means = []

        def push(self, row):
            self.means.append(row.mean().item())

    return _replayed(Log().push)


def _fed(batches):
    model = nn.Linear(1000, 1)
    return lambda: model(next(batches)[0]).mean().backward()


def a_loader_begun_again__no_note():
    loader = DataLoader(TensorDataset(torch.rand(40, 16, 1000)), batch_size=4, shuffle=True)

    def endless():
        while True:
            yield from loader

    return _fed(endless())


def batches_that_were_there_cycled__no_note():
    return _fed(itertools.cycle([(torch.rand(4, 16, 1000),) for _ in range(40)]))


def views_cycled__no_note():
    return _fed(itertools.cycle(TensorDataset(torch.rand(400, 16, 1000))))


def a_short_loader_cycled_before__no_note():
    loader = DataLoader(TensorDataset(torch.rand(12, 16, 1000)), batch_size=4)
    batches = itertools.cycle(loader)
    for _ in range(4):
        next(batches)
    return _fed(batches)


def arrays_of_the_last_step__no_note():
    class Log:
        def __init__(self):
            self.latest, self.history, self.names = [], [0.0] * 100, {str(n): n for n in range(99)}

        def see(self, out):
            self.latest = [out.detach().numpy(), *out.flatten().tolist()]
            self.history.append(float(out.mean()))
            self.names["latest"] = len(self.history)

    model, log = nn.Linear(64, 64), Log()

    def step():
        out = model(torch.ones(64, 64))
        out.mean().backward()
        log.see(out)

    return step


def a_cache_with_a_limit__no_note():
    @functools.lru_cache(maxsize=4)
    def shifted(by):
        return torch.ones(64, 64) + by

    model, steps = nn.Linear(64, 8), iter(range(1000))
    return lambda: model(shifted(next(steps))).mean().backward()


def lists_that_workers_empty__no_note():
    class Samples(Dataset):
        def __init__(self):
            self.rows = [float(n) for n in range(400)]
            self.buffer, self.last = [], deque(maxlen=8)

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            self.buffer.append(torch.ones(1000))
            self.last.append(torch.ones(1000))
            if len(self.buffer) == 6:
                self.buffer.clear()
            return torch.full((8,), self.rows[index])

    return on_samples(Samples())


def workers_that_keep_each_sample__no_note():
    class Samples(Dataset):
        def __init__(self):
            self.decoded = {}

        def __len__(self):
            return 400

        def __getitem__(self, index):
            if index not in self.decoded:
                self.decoded[index] = torch.ones(800)
            return self.decoded[index][:8]

    return on_samples(Samples())


def _cached(many, key, most=10**6):
    class Rows(Dataset):
        def __init__(self):
            self.rows = {}

        def __len__(self):
            return many

        def __getitem__(self, index):
            at = key(index)
            if at not in self.rows:
                self.rows[at] = torch.ones(800) * index
                if len(self.rows) > most:
                    self.rows.clear()
            return self.rows[at][:8]

    batches, model = endless(DataLoader(Rows(), 4, shuffle=True)), nn.Linear(8, 1)

    def step():
        model(next(batches)).mean().backward()

    return step


def a_dictionary_that_the_step_fills_for_each_sample():
    class Rows(Dataset):
        def __init__(self):
            self.losses = {}

        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.ones(8) * index

    rows, model, steps = Rows(), nn.Linear(8, 1), itertools.count()
    batches = endless(DataLoader(rows, 1, shuffle=True))

    def step():
        loss = model(next(batches)).mean()
        loss.backward()
        rows.losses[next(steps)] = loss.detach().repeat(800)

    return step


def a_cache_of_samples_in_its_first_epoch__no_note():
    return _cached(4000, lambda index: index)


def a_cache_of_several_parts_of_each_sample__no_note():
    def parts(index):
        return index, index % 3, index // 7

    return _cached(24, parts)


def a_cache_of_a_few_versions_of_each_sample__no_note():
    return _cached(60, lambda index: (index, torch.randint(3, ()).item()))


def a_cache_of_crops_that_is_emptied__no_note():
    return _cached(24, lambda index: (index, torch.rand(()).item()), most=1000)


def _of_epochs(push, ended):
    """``push`` gets the outputs of each step; ``ended`` is called with every fourth one."""
    model, steps = nn.Linear(8, 1), itertools.count(1)

    def step():
        out = model(torch.randn(128, 8))
        out.square().mean().backward()
        push(out.detach())
        if next(steps) % 4 == 0:
            ended()

    return step


def outputs_of_an_epoch_that_are_cleared__no_note():
    epoch_outputs = []

    def ended():
        torch.cat(epoch_outputs).std().item()
        epoch_outputs.clear()

    return _of_epochs(epoch_outputs.append, ended)


def a_mean_of_all_losses__no_note():
    all_losses = []

    def push(out):
        all_losses.append(out.square().mean())

    return _of_epochs(push, lambda: torch.stack(all_losses).mean().item())


def the_last_of_small_outputs__no_note():
    small_outputs = []

    def push(out):
        small_outputs.append(out)

    return _of_epochs(push, lambda: torch.cat(small_outputs[-4:]).std().item())


def small_outputs_joined_by_nobody__no_note():
    recent_outputs = []

    def push(out):
        recent_outputs.append(out)

    return _of_epochs(push, lambda: torch.cat([recent_outputs[-1], recent_outputs[-2]]).std().item())
