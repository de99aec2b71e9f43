"""CKPT002 must report exactly the marked lines."""

import torch
import torch.utils.checkpoint
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def first_layer_whose_input_has_no_gradient():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))

    def step():
        hidden = checkpoint(model[0], torch.ones(4, 8))  # CKPT002
        model[1](hidden).mean().backward()

    return step


def inner_layer_without_the_argument():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))

    def step():
        hidden = torch.utils.checkpoint.checkpoint(model[1], model[0](torch.ones(4, 8)))  # CKPT002
        model[2](hidden).mean().backward()

    return step


def sequence_without_the_argument():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 1))

    def step():
        hidden = model[0](torch.ones(4, 8))
        checkpoint_sequential(model[1:], 2, hidden).mean().backward()  # CKPT002

    return step


def none_is_no_choice():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))

    def step():
        hidden = model[0](torch.ones(4, 8))
        checkpoint(model[1], hidden, use_reentrant=None).mean().backward()  # CKPT002

    return step
