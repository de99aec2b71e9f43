"""The search for a size of micro-batches, with runs that are made up: what is proposed, with which
curve, and what never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.extensions.verify.accumulation_uses import Unclear
from auditor.extensions.verify.micro_batches import search_for, settings
from auditor.extensions.verify.results import Moves, Results
from auditor.extensions.verify.trials import Budget, Measured
from auditor.model.verification import Verification
from auditor.patch import PatchedFile
from tests.extensions.verify.test_accumulation import BY_OPTION, found, program, recording

STEPS = 5
Behaviour = Callable[[int, int], dict[str, Any]]


class Laboratory:
    """Runs of 1 s. ``behaviour`` says from batch size and count what differs from a run that trains
    as it should.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.now, self.asked = behaviour, 0.0, list[int]()

    def run(
        self, patched: Sequence[PatchedFile] = (), *, moves: bool, args: tuple[str, ...]
    ) -> Measured:
        text = patched[0].after.decode() if patched else program()
        batch, count = (
            map(int, args[1::2])
            if args
            else (int(line.partition("=")[2]) for line in text.split("\n")[:2])
        )
        self.now += 1.0
        assert moves
        self.asked.append(batch)
        facts = {
            "us": 1000.0,
            "peak": None,
            "host": 1 << 28,
            "loss": 1.0,
            "count": count,
            "failed": "",
            "steps": STEPS,
            "end": 2.0,
        }
        facts |= self.behaviour(batch, count)
        losses = (facts["loss"] / facts["count"],) * (STEPS * facts["count"])
        moves = Moves(facts["steps"], (("weight", 1, (0.0,), (facts["end"],)),))
        us = facts["us"] * (1 + 0.001 * (len(self.asked) % 5))
        return Measured(
            Results(losses, ()),
            us,
            facts["peak"],
            facts["host"],
            None,
            frozenset(),
            0.0,
            facts["failed"],
            moves,
        )


def searched(
    behaviour: Behaviour,
    *,
    budget: float = 500.0,
    device: str = "cpu",
    source: str = "",
    **facts: Any,
) -> Any:
    kept = recording(source or program(), **facts)
    kept.manifest["device"] = device
    laboratory: Any = Laboratory(behaviour)
    said = list[str]()
    search = search_for(Evidence(kept))
    assert search is not None
    proposal, note = search.run(laboratory, Budget(budget, lambda: laboratory.now), said.append)
    return SimpleNamespace(
        proposal=proposal, note=note, said=said, asked=laboratory.asked, took=laboratory.now
    )


def faster_when_larger(batch: int, count: int) -> dict[str, Any]:
    return {"us": 500.0 + 100.0 * count}


def test_the_grid_keeps_the_product() -> None:
    assert list(settings(found(program())).values()) == [(8, 4), (16, 2), (32, 1)]
    six = found(program(numbers="BATCH = 5\nEVERY = 6\n"), ran=5, backwards=6)
    assert list(settings(six).values()) == [(10, 3), (30, 1)]


def test_the_fastest_is_proposed_with_its_curve_and_a_patch() -> None:
    done = searched(faster_when_larger)
    assert done.proposal.verified.status == "better"
    assert done.proposal.verified.ratio == pytest.approx(600 / 1300, rel=0.01)
    assert "no more than rounding in another order" in done.proposal.verified.note
    assert [name for name, _ in done.proposal.curve] == [
        "8 micro-batches of 4 (now)",
        "4 micro-batches of 8",
        "2 micro-batches of 16",
        "1 micro-batch of 32",
    ]
    assert done.proposal.curve[0][1].startswith("1.3 ms") and "(0.46 [" in done.proposal.curve[3][1]
    assert all("peak 256 MiB" in came for _, came in done.proposal.curve)
    assert "-BATCH = 4\n-EVERY = 8\n+BATCH = 32\n+EVERY = 1" in done.proposal.diff
    assert done.proposal.text.startswith(
        "1 micro-batch of 32 in the place of 8 micro-batches of 4 (train.py:8)"
    )


def test_numbers_of_the_command_line_are_proposed_there() -> None:
    done = searched(faster_when_larger, source=BY_OPTION, argv="--batch-size 4 --accumulate 8")
    assert "On the command line: `--batch-size 32 --accumulate 1`." in done.proposal.text
    assert done.proposal.diff == ""


def test_where_none_is_faster_nothing_is_proposed_and_the_curve_is_told() -> None:
    done = searched(lambda batch, count: {"us": 1000.0 + batch})
    assert done.proposal is None
    assert "1 micro-batch of 32: 1.03 ms" in done.note and done.note.endswith(
        "none is proven better"
    )


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"end": 2.1}, "its parameters end 5.0e-02 of how far they moved"),
        ({"loss": 1.01}, "losses of its optimizer steps differ by up to 9.9e-03"),
        ({"count": 8}, "backward was called 40 times for 5 optimizer steps, not 1 times"),
        ({"steps": 10}, "not 1 times for each"),
    ],
)
def test_a_size_that_trains_something_else_is_dropped_and_said(
    differs: dict[str, Any], why: str
) -> None:
    done = searched(
        lambda batch, count: faster_when_larger(batch, count) | (differs if batch == 32 else {})
    )
    assert "+BATCH = 16" in done.proposal.diff
    ((_, came),) = (row for row in done.proposal.curve if row[0] == "1 micro-batch of 32")
    assert came.startswith("dropped: another result") and why in came
    assert "batch norm, dropout" in done.proposal.text
    assert done.asked.count(32) == 1


def test_where_all_sizes_are_dropped_that_is_said_and_no_time_is_lost() -> None:
    done = searched(lambda batch, count: {"loss": float(batch)})
    assert done.proposal is None and len(done.asked) == 4
    assert "none is proven better: mostly, what is computed depends on" in done.note


def test_a_size_that_fails_is_said() -> None:
    done = searched(
        lambda batch, count: (
            faster_when_larger(batch, count)
            | {"failed": "OutOfMemoryError: x" if batch > 8 else ""}
        )
    )
    assert "+BATCH = 8" in done.proposal.diff
    assert done.proposal.curve[3] == ("1 micro-batch of 32", "fails, OutOfMemoryError: x")


@pytest.mark.parametrize(
    ("behaviour", "why", "runs"),
    [
        (lambda batch, count: {"failed": "ValueError: no"}, "ValueError: no", 1),
        (
            lambda batch, count: {"count": 6},
            "it does not accumulate as its lines say: backward was called 30 times",
            1,
        ),
    ],
)
def test_a_program_that_does_not_do_as_it_says_is_left_alone_at_once(
    behaviour: Behaviour, why: str, runs: int
) -> None:
    done = searched(behaviour)
    assert done.proposal is None and why in done.note
    assert len(done.asked) == runs


def test_a_program_that_does_not_repeat_itself_gets_no_proposal() -> None:
    draws = iter(range(1000))
    done = searched(
        lambda batch, count: {"loss": 1.0 + 1e-7 * next(draws), "us": 500.0 + 100.0 * count}
    )
    assert done.proposal is None
    assert "two runs with the same seeds computed different losses" in done.note


@pytest.mark.parametrize("budget", [0.0, 1.0, 3.0, 4.5, 8.0, 11.0, 30.0])
def test_the_budget_holds(budget: float) -> None:
    done = searched(faster_when_larger, budget=budget)
    assert done.took <= budget
    assert (done.proposal is not None) == (budget >= 8.0)


def test_without_times_or_accumulation_there_is_no_search() -> None:
    rehearsed = recording(program())
    rehearsed.manifest["device"] = "rehearse"
    assert search_for(Evidence(rehearsed)) is None


def test_a_number_that_cannot_be_set_is_a_reason() -> None:
    kept = recording(program())
    kept.manifest["device"] = "cpu"
    kept.source_bytes = lambda file: (
        program().replace("BATCH = 4", "BATCH = 5").encode() if file == "train.py" else None
    )
    with pytest.raises(Unclear, match=r"batch size was 4|is not what it was"):
        search_for(Evidence(kept))


def test_a_proposal_is_shown_and_said() -> None:
    from auditor.reports.page import proposals
    from auditor.reports.verified import proposed

    made = searched(faster_when_larger).proposal
    verification = Verification(None, (), None, True, 12, 20, 60.0, (), (made,))
    shown = proposals(SimpleNamespace(verification=verification))  # type: ignore[arg-type]
    assert [line.text for line in shown[0].diff if line.kind == "add"] == [
        "+BATCH = 32",
        "+EVERY = 1",
    ]
    assert "2.17x faster" in shown[0].gain
    assert any(
        "git apply" in line or "proposals.patch sets it" in line for line in proposed(verification)
    )
