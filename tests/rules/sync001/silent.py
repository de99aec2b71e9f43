import itertools

import numpy as np
import torch
from torch import nn

from tests.rules.programs import behind_a_backward, scored, trained_with
from tests.timeline.kineto import text, training


def inverse_without_its_check__rehearsal():
    model = nn.Linear(8, 4, device="cuda")

    def step():
        matrices = model(torch.ones(4, 8, device="cuda")).view(4, 2, 2)
        inverse, _ = torch.linalg.inv_ex(matrices @ matrices.mT + torch.eye(2, device="cuda"))
        inverse.square().mean().backward()

    return step


def logged_every_fiftieth_step__rehearsal():
    done, log = itertools.count(1), []
    return behind_a_backward(lambda loss: next(done) % 50 or log.append(loss.item()), "cuda")


def item_of_a_numpy_array__rehearsal():
    model, values = nn.Linear(8, 1, device="cuda"), np.ones(3)
    return lambda: (model(torch.ones(4, 8, device="cuda")).mean() * values.sum().item()).backward()


def item_of_a_tensor_that_never_leaves_the_host__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        length = torch.randint(1, 4, (1,)).item()
        model(torch.ones(length, 8, device="cuda")).mean().backward()

    return step


def adam_reads_its_own_step_counters__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda")
    return trained_with(torch.optim.Adam(model.parameters(), foreach=False), lambda: model(x).mean())


def gradient_clipping_stays_on_the_device__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return step


def masked_fill_with_a_host_scalar__rehearsal():
    low = torch.tensor(-1e9)
    return scored(lambda out: out.masked_fill(out > 0, low).softmax(1).mean(), 8)


def loss_read_by_a_program_that_has_no_gpu_path__no_note():
    history = []
    return behind_a_backward(lambda loss: history.append(loss.item()))


def number_of_a_host_tensor__trace():
    calls = ("cudaMemcpyAsync", "cudaStreamSynchronize")
    return text([event for event in training(3) if event["name"] not in calls and "DtoH" not in event["name"]])


def log_of_many_values_in_every_tenth_step__rehearsal():
    model, done, shown = nn.Linear(8, 1, device="cuda"), itertools.count(), {}

    def step():
        out = model(torch.ones(4, 8, device="cuda"))
        parts = {f"part{number}": (out * number).square().mean() for number in range(16)}
        sum(parts.values()).backward()
        if next(done) % 10 == 2:
            shown.update({name: value.item() for name, value in parts.items()})

    return step


def evaluation_that_sums_on_the_device__rehearsal():
    model, done = nn.Linear(8, 1, device="cuda"), itertools.count()
    batches = [torch.ones(64, 8, device="cuda") for _ in range(16)]

    def step():
        model(batches[0]).mean().backward()
        if next(done) % 10 == 2:
            with torch.no_grad():
                return sum((model(batch) > 0.5).float().mean() for batch in batches).item()
        return 0.0

    return step
