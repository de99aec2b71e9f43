"""Near misses: CKPT002 must stay silent on all of these."""

import functools
import inspect

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def _model():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))


def the_new_variant():
    model = _model()

    def step():
        checkpoint(model, torch.ones(4, 8), use_reentrant=False).mean().backward()

    return step


def the_old_variant_by_choice():
    model = _model()

    def step():
        hidden = model[0](torch.ones(4, 8))
        checkpoint(model[1:], hidden, use_reentrant=True).mean().backward()

    return step


def chosen_once_by_a_partial():
    model, again = _model(), functools.partial(checkpoint, use_reentrant=False)

    def step():
        again(model, torch.ones(4, 8)).mean().backward()

    return step


def sequence_that_says_so():
    model = _model()

    def step():
        checkpoint_sequential(model, 2, torch.ones(4, 8), use_reentrant=False).mean().backward()

    return step


def a_function_of_ones_own_by_that_name():
    model = _model()

    def checkpoint(function, *args):
        return function(*args)

    def step():
        checkpoint(model, torch.ones(4, 8)).mean().backward()

    return step


def a_library_left_it_out():
    names = {"checkpoint": checkpoint}
    code = compile("def forward(model, x):\n    return checkpoint(model, x)\n", inspect.getfile(inspect), "exec")
    exec(code, names)
    model = _model()

    def step():
        names["forward"](model[1:], model[0](torch.ones(4, 8))).mean().backward()

    return step
