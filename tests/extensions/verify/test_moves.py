"""Two runs that cut their batches differently train alike, or not: told by the loss of each step
and by where parameters end.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from auditor.extensions.verify.results import (
    LOSS_TOLERANCE,
    MOVE_TOLERANCE,
    Moves,
    Results,
    Training,
    alike,
)
from tests.inprocess import record

HERE = Path(__file__).parent
STEPS = 6


def training(
    losses: tuple[float, ...] = (1.0, 3.0, 0.5, 1.5),
    end: float = 2.0,
    count: int = 2,
    steps: int = 2,
) -> Training:
    return Training(
        losses,
        Moves(steps, (("weight", 2, (0.0, 1.0), (end, 3.0)), ("bias", 1, (0.0,), (1.0,)))),
        count,
    )


def test_sums_of_other_micro_batches_may_be_the_same_training() -> None:
    done = alike(training(), training((4.0, 2.0), count=1))
    assert done.same
    assert f"within {MOVE_TOLERANCE:g} of how far they moved" in done.note


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (
            training((4.0, 2.0 * (1 + 3 * LOSS_TOLERANCE)), count=1),
            "losses of its optimizer steps differ by up to",
        ),
        (training((4.0, math.nan), count=1), "losses of its optimizer steps differ"),
        (
            training((4.0, 2.0), end=2.0 + 4 * MOVE_TOLERANCE * 3, count=1),
            "of how far they moved from where they should",
        ),
        (training((4.0, 2.0), end=math.nan, count=1), "of how far they moved"),
        (
            training((1.0, 3.0, 0.5, 1.5), count=1),
            "backward was called 4 times for 2 optimizer steps, not 1 times for each",
        ),
        (training((4.0, 2.0, 1.0), count=1, steps=3), "it made 3 optimizer steps instead of 2"),
        (Training((4.0, 2.0), Moves(2, ()), 1), "the optimizers hold other parameters"),
    ],
)
def test_what_differs_by_more_than_rounding_is_another_training(after: Training, why: str) -> None:
    done = alike(training(), after)
    assert not done.same
    assert why in done.note


def test_without_steps_nothing_is_the_same() -> None:
    nothing = Training((), Moves(0, ()), 2)
    assert alike(nothing, nothing).note == "no optimizer steps were seen"


def _step(
    batch: int, count: int, *, norm: bool = False, masked: bool = False, summed: bool = False
):
    def make():
        torch.manual_seed(3)
        layers = [
            torch.nn.Linear(16, 32),
            *([torch.nn.BatchNorm1d(32)] if norm else []),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 4),
        ]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        draw = torch.Generator().manual_seed(5)
        data, labels = (
            torch.randn(512, 16, generator=draw),
            torch.randint(0, 4, (512,), generator=draw),
        )
        if masked:
            labels[torch.rand(512, generator=draw) < 0.2] = -100
        at = [0]

        def step():
            for _ in range(count):
                chosen = slice(at[0], at[0] + batch)
                at[0] += batch
                loss = torch.nn.functional.cross_entropy(
                    model(data[chosen]), labels[chosen], reduction="sum" if summed else "mean"
                )
                (loss / count).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return make


def _trained(folder: Path, batch: int, count: int, **how: bool) -> Training:
    recording = record(
        folder, _step(batch, count, **how), ("results", "moves"), roots=[HERE], steps=STEPS
    )
    return Training(Results.read(recording).losses, Moves.read(recording), count)


@pytest.mark.parametrize("larger", [8, 32])
def test_real_training_on_the_same_samples_is_alike(tmp_path: Path, larger: int) -> None:
    before, after = (
        _trained(tmp_path / "one", 4, 8),
        _trained(tmp_path / "other", larger, 32 // larger),
    )
    done = alike(before, after)
    assert done.same, done.note
    assert before.moves.steps >= STEPS
    assert before.moves != after.moves  # it is rounding that was judged, not a copy


@pytest.mark.parametrize("how", ["norm", "masked", "summed"])
def test_real_training_that_depends_on_the_micro_batch_is_not(tmp_path: Path, how: str) -> None:
    before, after = (
        _trained(tmp_path / str(size), size, 32 // size, **{how: True}) for size in (4, 8)
    )
    assert not alike(before, after).same
