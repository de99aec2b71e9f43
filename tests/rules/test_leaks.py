"""Filters over time that reach into what is to be predicted, by value."""

from __future__ import annotations

import pytest
import torch
from auditor.rules.train.probes.leaks import _ahead, _fit, _reaches

LENGTH, STEPS = 40, 6


def _cut(*series: torch.Tensor) -> list[torch.Tensor]:
    """Windows of each series, and behind them the values of the first that follow."""
    starts = range(60, 60 + 16 * 90, 90)
    cut = [torch.stack([each[at : at + LENGTH + STEPS] for at in starts]) for each in series]
    return [*(each[:, :LENGTH] for each in cut), cut[0][:, LENGTH:]]


def _walk() -> torch.Tensor:
    return torch.randn(1800, generator=torch.Generator().manual_seed(0)).double().cumsum(0)


def _filtered(walk: torch.Tensor, weights: dict[int, float]) -> torch.Tensor:
    """``weights`` by how many steps ahead a value lies."""
    made = torch.zeros_like(walk)
    for ahead, weight in weights.items():
        made += weight * walk.roll(-ahead)
    return made


@pytest.mark.parametrize(
    ("weights", "ahead"),
    [
        ({-1: 0.25, 0: 0.5, 1: 0.25}, 1),
        (dict.fromkeys(range(-4, 5), 1 / 9), 4),
        ({3: 1.0}, 3),
        (dict.fromkeys(range(-9, 10), 1 / 19), 9),  # further than the targets
        ({0: 1.0}, 0),
        ({-2: 0.5, -1: 0.5}, 0),
        (dict.fromkeys(range(-15, 16), 1 / 31), 0),  # wider than what is looked at
    ],
)
def test_how_far_a_filter_reaches(weights, ahead):
    walk = _walk()
    other, one, future = _cut(walk, _filtered(walk, weights))
    assert _ahead(one, other, future) == ahead


def test_targets_must_be_what_follows():
    walk = _walk()
    other, one, future = _cut(walk, _filtered(walk, {-1: 0.5, 1: 0.5}))
    noise = torch.randn(future.shape, generator=torch.Generator().manual_seed(2)).double()
    assert _ahead(one, other, future + noise) == 0  # as large as the walk's own steps
    assert _ahead(one, other, future.roll(1, 0)) == 0


@pytest.mark.parametrize("waves", [(0.26,), (0.26, 0.9), (0.1, 0.37, 1.3)])
@pytest.mark.parametrize("ahead", [1, 4])
def test_what_the_past_gives_is_no_future(waves, ahead):
    """Many filters make the same of waves: some of them look back only."""
    times = torch.arange(1800.0).double()
    wave = torch.stack([(times * each).sin() for each in waves]).sum(0)
    other, one, future = _cut(wave, _filtered(wave, {-ahead: 0.5, ahead: 0.5}))
    assert _ahead(one, other, future) == 0
    assert _fit(other.unfold(1, 21, 1), one[:, 10:-10].flatten())[1] < 1e-9


def test_a_scaled_channel_with_a_constant():
    walk = _walk()
    other, one, future = _cut(walk, 3 * _filtered(walk, {-1: 0.5, 2: 0.5}) + 7)
    assert _ahead(one, other, future) == 2


def test_which_channel():
    walk = _walk()
    other, one, future = _cut(walk, _filtered(walk, {-1: 0.5, 1: 0.5}))
    noise = torch.randn(one.shape, generator=torch.Generator().manual_seed(1)).double()
    assert _reaches(torch.stack([noise, other, one], 1), future) == (1, 2)
    assert _reaches(torch.stack([noise, other], 1), future) is None
    assert _reaches(torch.stack([one.new_ones(one.shape), other], 1), future) is None
