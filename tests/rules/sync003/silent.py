import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import behind_a_backward
from tests.rules.traces import copying
from tests.timeline.kineto import loop, text


def indices_drawn_on_the_host__rehearsal():
    model, data = nn.Linear(8, 1, device="cuda"), torch.ones(16, 8, device="cuda")

    def step():
        rows = torch.randperm(16)[:4].tolist()
        model(data[rows]).mean().backward()

    return step


def weights_saved_every_fiftieth_step__rehearsal():
    done, saved = itertools.count(1), []
    return behind_a_backward(lambda loss: next(done) % 50 or saved.append(loss.detach().cpu()), "cuda")


def sampler_of_a_loader__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    loader = DataLoader(TensorDataset(torch.ones(400, 8)), batch_size=4, shuffle=True)
    state = {"batches": iter(loader)}

    def step():
        try:
            (x,) = next(state["batches"])
        except StopIteration:
            state["batches"] = iter(loader)
            (x,) = next(state["batches"])
        model(x.cuda()).mean().backward()

    return step


def moved_to_the_training_device__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    device = next(model.parameters()).device
    return lambda: model(torch.ones(4, 8).to(device, non_blocking=True)).mean().backward()


def cast_to_another_dtype__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    return lambda: model(torch.ones(4, 8, device="cuda")).to(torch.float64).mean().backward()


def asynchronous_copy_to_pageable_memory_is_another_rules__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "DtoH (Device -> Pageable)", waits=False)))


def fetched_into_pinned_memory_and_read_a_step_later__rehearsal():
    kept = []
    return behind_a_backward(lambda loss: kept.append(loss.detach().to("cpu", non_blocking=True)), "cuda")
