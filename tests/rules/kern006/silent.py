import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.rules.programs import trained_with
from tests.rules.traces import inside, operator, times, traced


def a_recurrence_over_time():
    inside, across = nn.Linear(8, 8), nn.Linear(8, 8)

    def step():
        x, h = torch.randn(4, 16, 8), torch.zeros(4, 8)
        for t in range(16):
            h = torch.tanh(x[:, t] @ inside.weight + across(h))
        h.mean().backward()

    return step


def written_from_the_row_before():
    model = nn.Linear(8, 8)

    def step():
        x = model(torch.randn(16, 8))
        out = torch.zeros(16, 8)
        with torch.no_grad():
            for t in range(1, 16):
                out[t] = out[t - 1] * 0.5 + x[t].tanh()
        (x - out).mean().backward()

    return step


def microbatches_with_their_backward():
    model = nn.Linear(8, 8)

    def step():
        for x in torch.randn(48, 8).split(4):
            (model(x * 2) * x).mean().backward()

    return step


def samples_of_different_lengths():
    model = nn.Linear(8, 8)

    def step():
        x = model(torch.randn(16, 20, 8))
        total = 0.0
        for i in range(16):
            total = total + x[i, : i + 1].max()
        total.backward()

    return step


class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(64, 8)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return (self.rows[i] - 0.5) * 2


def a_dataset_that_prepares_each_sample():
    model = nn.Linear(8, 1)
    batches = iter(DataLoader(Rows(), batch_size=16, sampler=[i % 64 for i in range(6400)]))
    return lambda: model(next(batches)).mean().backward()


def eight_heads():
    model = nn.Linear(8, 8)

    def step():
        out = model(torch.randn(16, 8))
        torch.stack([out[:, head] * head for head in range(8)]).mean().backward()

    return step


def layers_of_one_model():
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(16))

    def step():
        x = torch.randn(4, 8)
        for layer in layers:
            x = layer(x).relu()
        x.mean().backward()

    return step


def steps_of_an_optimizer_over_one_flat_buffer():
    flat = torch.randn(160)
    parameters = [nn.Parameter(flat[10 * i : 10 * i + 10]) for i in range(16)]

    def loss():
        return torch.stack(list(parameters)).square().mean()

    return trained_with(torch.optim.SGD(parameters, lr=0.1, foreach=False), loss)


def weights_of_layers_one_after_the_other():
    weights = [nn.Parameter(torch.eye(8)) for _ in range(12)]
    scales = [nn.Parameter(torch.ones(8)) for _ in range(12)]
    torch.optim.SGD([*weights, *scales], lr=0.1)

    def step():
        x = torch.ones(8)
        for weight, scale in zip(weights, scales, strict=True):
            x = torch.tanh(weight @ x) * scale
        x.mean().backward()

    return step


def an_average_by_foreach():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    average = copy.deepcopy(model).requires_grad_(False)

    def step():
        model(torch.ones(4, 8)).mean().backward()
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.01)

    return step


def clipping_and_an_average_of_torchs_own():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])
    average = torch.optim.swa_utils.AveragedModel(model)

    def step():
        model.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        average.update_parameters(model)

    return step


def nine_parameters():
    parameters = [nn.Parameter(torch.ones(4)) for _ in range(9)]
    torch.optim.SGD(parameters, lr=0.1)

    def step():
        torch.stack(list(parameters)).square().mean().backward()
        with torch.no_grad():
            for p in parameters:
                p.sub_(p.grad, alpha=0.1)
                p.grad = None

    return step


def seven_masks():
    model = nn.Linear(8, 8)

    def step():
        y = torch.arange(70).remainder(7)
        z = model(torch.randn(70, 8))
        torch.stack([z[y == k].mean(0) for k in range(7)]).square().mean().backward()

    return step


def masks_that_choose_what_experts_see():
    experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(10))

    def step():
        x, chosen = torch.randn(40, 8), torch.arange(40).remainder(10)
        out = torch.zeros_like(x)
        for k, expert in enumerate(experts):
            rows = (chosen == k).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]))
        out.square().mean().backward()

    return step


def masks_that_are_sorted():
    model = nn.Linear(8, 1)

    def step():
        y, z, total = torch.arange(80).remainder(10), model(torch.randn(80, 8))[:, 0], 0.0
        for k in range(10):
            total = total + z[y == k].sort().values[:2].sum()
        total.backward()

    return step


def a_long_integration_in_small_steps():
    field = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))

    def slope(t, y):
        return field(torch.cat([y, t.expand(1)]))

    def step():
        times, y = torch.linspace(0, 1, 41), torch.zeros(2)
        for i in range(40):
            dt = times[i + 1] - times[i]
            k = slope(times[i], y)
            y = y + dt * slope(times[i] + dt / 2, y + dt / 2 * k)
        y.square().mean().backward()

    return step


def a_few_turns_of_much_work_each():
    model = nn.Linear(8, 8)

    def step():
        x = model(torch.randn(12, 8))
        total = []
        for i in range(12):
            y = x[i]
            for _ in range(6):
                y = torch.tanh(y * 0.5 + 1).exp().log1p()
            total.append(y.sum())
        torch.stack(total).mean().backward()

    return step


def a_cheapest_path_cell_by_cell():
    model = nn.Linear(8, 8)

    def step():
        cost = torch.cdist(model(torch.randn(8, 8)), torch.randn(7, 8))
        with torch.no_grad():
            best = torch.full((9, 8), torch.inf)
            best[0, 0] = 0
            for i in range(8):
                for j in range(7):
                    before = torch.minimum(torch.minimum(best[i, j + 1], best[i + 1, j]), best[i, j])
                    best[i + 1, j + 1] = cost[i, j] + before
        (cost * best[1:, 1:]).mean().backward()

    return step


def a_sum_that_decides_about_the_next_turn():
    model = nn.Linear(8, 1)

    def step():
        p, done = model(torch.randn(20, 8)).sigmoid(), torch.zeros(1)
        for t in range(20):
            done = done + p[t]
            if done.item() > 19:
                break
        done.sum().backward()

    return step


def children_before_their_parents():
    model = nn.Linear(8, 8)
    children = [torch.tensor([k, k // 2]) for k in range(16)]

    def step():
        x = model(torch.randn(20, 8))
        with torch.no_grad():
            state = x.clone()
            for node, rows in enumerate(children, 1):
                state[node] = torch.tanh(state[rows].sum(0))
        (x * state).mean().backward()

    return step
