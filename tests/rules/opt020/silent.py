import torch

from tests.rules.opt020.fires import _grown


def _old(grad):
    return (torch.arange(12) >= 8)[:, None]


def decay_that_is_off__no_note():
    return _grown(_old, decay=0.0)


def rows_that_no_hook_masks__no_note():
    return _grown(_old, hook=False)


def a_hook_that_scales__no_note():
    return _grown(lambda grad: 0.5)


def columns_that_are_masked__no_note():
    return _grown(lambda grad: torch.arange(8) > 3)


def rows_that_are_masked_on_some_steps__no_note():
    steps = []

    def mask(grad):
        steps.append(len(steps))
        return (torch.arange(12) % 2 == len(steps) % 2)[:, None]

    return _grown(mask)
