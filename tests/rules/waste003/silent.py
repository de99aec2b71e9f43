import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import numbered, optimized, trained_by, trained_once


def all_of_the_batch_is_read__rehearsal():
    device = "cuda"
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)).to(device)

    def loss_of():
        batch = {"ids": torch.randint(0, 50, (16, 64)), "mask": torch.ones(16, 64)}
        batch = {k: v.to(device) for k, v in batch.items()}
        loss = F.cross_entropy(model(batch["ids"]).transpose(1, 2), batch["ids"], reduction="none")
        return (loss * batch["mask"]).sum()

    return trained_by(model, loss_of)


def used_in_the_next_step__rehearsal():
    device = "cuda"
    model = nn.Linear(32, 8).to(device)
    ahead = [None]

    def loss():
        x, ahead[0] = ahead[0], torch.randn(64, 32).to(device)
        if x is None:
            x = ahead[0]
        return model(x).square().mean()

    return trained_by(model, loss)


def kept_on_the_device__rehearsal():
    model = nn.Linear(32, 8).to("cuda")
    replay = []

    def loss():
        x, extra = torch.randn(64, 32).to("cuda"), torch.randn(64, 32)
        replay.append(extra.to("cuda"))
        return model(x).square().mean()

    return trained_by(model, loss)


def read_on_each_hundredth_step__rehearsal():
    model, opt = optimized(nn.Linear(32, 8).to("cuda"), lr=0.1)
    batches = enumerate(iter(lambda: torch.randn(64, 32), None))

    def step():
        number, x = next(batches)
        x, extra = x.to("cuda"), torch.randn(64, 32).to("cuda")
        trained_once(model, opt, x)
        if number % 100 == 99:
            print(torch.cat([x, extra]).mean())

    return step


def read_in_the_last_steps_only__rehearsal():
    model, opt = optimized(nn.Linear(32, 8).to("cuda"), lr=0.1)

    def step(number):
        x = torch.randn(64, 32).to("cuda")
        extra = torch.randn(64, 32).to("cuda")
        trained_once(model, opt, x)
        if number > 1000:
            model(extra)

    return numbered(step)


def _deep_copied(**more):
    """A step that copies a dictionary of a model, its optimizer and ``more``."""
    model, opt = optimized(nn.Linear(1024, 512), torch.optim.Adam)
    kept, x = {}, torch.ones(2, 1024)

    def step():
        trained_once(model, opt, x)
        kept["copy"] = copy.deepcopy({"model": model, "opt": opt, **more})

    return step


def deep_copy_of_a_model_and_its_optimizer__no_note():
    return _deep_copied()


def deep_copy_of_less_data_than_weights__no_note():
    return _deep_copied(data=torch.ones(300, 1000))


def deep_copy_of_states_and_averages__no_note():
    return _deep_copied(average=torch.ones(512, 1024))


def deep_copies_of_a_batch_and_of_a_state__no_note():
    model, opt = optimized(nn.Linear(64, 8))
    x = torch.ones(8000, 64)

    def step():
        batch = copy.deepcopy({"x": x})
        trained_once(model, opt, batch["x"])
        return copy.deepcopy(model), copy.deepcopy(model.state_dict())

    return step
