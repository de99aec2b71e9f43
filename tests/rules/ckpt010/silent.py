"""Near misses: CKPT010 must stay silent on all of these."""

import os
import tempfile

import torch
from torch import nn
from torch.optim import lr_scheduler


def _parts(schedule=lambda optimizer: lr_scheduler.StepLR(optimizer, 10), kind=torch.optim.AdamW):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = kind(model.parameters(), lr=1e-3)
    return model, optimizer, schedule(optimizer)


def _train(model, optimizer, scheduler):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    scheduler.step()


def _saved(parts, names=("model", "optimizer", "scheduler"), inside=""):
    for _ in range(15):
        _train(*parts)
    state = {name: each.state_dict() for name, each in zip(names, parts, strict=True)}
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    torch.save({inside: state, "epoch": 3} if inside else {**state, "epoch": 3}, path)
    return path


def both_are_loaded():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    return lambda: _train(model, optimizer, scheduler)


def both_are_loaded_the_scheduler_first_and_from_a_copy():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    state = torch.load(path)
    scheduler.load_state_dict(dict(state["scheduler"]))
    optimizer.load_state_dict(state["optimizer"])
    return lambda: _train(model, optimizer, scheduler)


def only_the_weights_are_loaded():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    model.load_state_dict(torch.load(path)["model"])
    return lambda: _train(model, optimizer, scheduler)


def a_new_schedule_with_other_settings():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts(lambda each: lr_scheduler.StepLR(each, 100))
    state = torch.load(path)
    optimizer.load_state_dict(state["optimizer"])
    return lambda: _train(model, optimizer, scheduler)


def another_kind_of_schedule():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts(lambda each: lr_scheduler.ExponentialLR(each, 0.99))
    optimizer.load_state_dict(torch.load(path)["optimizer"])
    return lambda: _train(model, optimizer, scheduler)


def a_schedule_that_is_put_to_its_place_by_stepping():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    state = torch.load(path)
    optimizer.load_state_dict(state["optimizer"])
    for _ in range(state["epoch"] * 5):
        scheduler.step()
    return lambda: _train(model, optimizer, scheduler)


def no_schedule_any_more():
    path = _saved(_parts())
    model, optimizer, _ = _parts()
    optimizer.load_state_dict(torch.load(path)["optimizer"])

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    return step


def a_schedule_that_had_not_begun_when_it_was_saved():
    model, optimizer, scheduler = _parts()
    path = _saved((model, optimizer, scheduler))
    state = torch.load(path)
    state["scheduler"]["last_epoch"] = 0
    torch.save(state, path)
    model, optimizer, scheduler = _parts()
    optimizer.load_state_dict(torch.load(path)["optimizer"])
    return lambda: _train(model, optimizer, scheduler)


def an_optimizer_of_other_parameters():
    path = _saved(_parts())
    model, optimizer, scheduler = _parts()
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})
    scheduler.load_state_dict(torch.load(path)["scheduler"])
    return lambda: _train(model, optimizer, scheduler)


def two_optimizers_in_one_file_whose_scheduler_is_not_told():
    one, other = _parts(), _parts()
    path = _saved(one)
    state = torch.load(path)
    torch.save({**state, "second": other[1].state_dict() | {"state": state["optimizer"]["state"]}}, path)
    model, optimizer, scheduler = _parts()
    optimizer.load_state_dict(torch.load(path)["optimizer"])
    return lambda: _train(model, optimizer, scheduler)
