import torch
from torch import nn

from tests.rules.programs import losses


def _trained(form, size=5, width=16):
    model = nn.Conv1d(size, 4, 3)
    return lambda: model(form(torch.randn(8, width, size))).square().mean().backward()


def exchanged__no_note():
    return _trained(lambda x: x.permute(0, 2, 1))


def equal_sizes__no_note():
    return _trained(lambda x: x.reshape(8, 16, 16), size=16)


def undone__no_note():
    return _trained(lambda x: x.transpose(1, 2).reshape(8, 16, 5).reshape(8, 5, 16))


def equal_numbers__no_note():
    return _trained(lambda x: torch.ones(8, 16, 5).reshape(8, 5, 16))


def merged_and_split__no_note():
    model = nn.Linear(80, 12)
    return lambda: model(torch.randn(8, 16, 5).flatten(1)).view(8, 3, 4).square().mean().backward()


def one_channel__no_note():
    return _trained(lambda x: x.reshape(8, 1, 16), size=1)


@losses(lambda: (nn.GRU(8, 6, bidirectional=True, batch_first=True), nn.Linear(12, 1)))
def last_states_side_by_side__no_note(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    return head(state.transpose(0, 1).reshape(4, -1)).square().mean()


def _two_layers():
    return nn.GRU(8, 6, 2, bidirectional=True, batch_first=True), nn.Linear(12, 1)


@losses(_two_layers)
def states_of_the_last_layer_exchanged__no_note(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    return head(state[-2:].transpose(0, 1).reshape(4, -1)).square().mean()


@losses(_two_layers)
def states_by_layer_exchanged__no_note(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    top = state.view(2, 2, 4, 6)[-1].permute(1, 0, 2)
    return head(top.reshape(4, -1)).square().mean()


@losses(_two_layers)
def states_of_one_sample__no_note(layer, head):
    _, state = layer(torch.randn(1, 7, 8))
    return head(state[-2:].reshape(1, -1)).square().mean()


@losses(lambda: (nn.GRU(8, 6, 2, batch_first=True), nn.Linear(6, 1)))
def states_of_one_direction__no_note(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    return head(state[-1:].reshape(4, -1)).square().mean()


@losses(lambda: (nn.GRU(8, 6, 2, batch_first=True, bidirectional=True), nn.Linear(6, 1)))
def states_of_all_directions_as_rows__no_note(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    return head(state[-2:].reshape(8, -1)).square().mean()
