"""DIST011: the ranks call different collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from .collective_order import CollectiveOrder
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from .collective_order import WAITS, Call, Parting
from auditor.evidence.source.loops import left_between
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of


@dataclass(frozen=True)
class RanksPart(Rule):
    """The ranks do not call the same collectives in the same order"""

    code = "DIST011"
    severity = Severity.ERROR
    since = "0.1"

    sizes: bool = knob(True, "Whether tensors of different sizes are reported, too.")

    def detect(self, order: CollectiveOrder, machine: Machine, source: Source) -> Iterator[Finding]:
        parting = order.parting
        if parting is None:
            return
        one, other = parting.one, parting.other
        if other is not None and other.what == WAITS:
            yield _left_alone(parting, other, source, machine)
            return
        if other is None:
            there = f"rank {parting.other_rank} goes on to its next step without it"
        elif other.what != one.what or other.numbers == one.numbers:
            there = f"rank {other.rank} calls {other.what} at {other.site}"
        elif self.sizes:
            there = f"rank {other.rank} gives {amounts.count(other.numbers, 'number')}"
            there += f" and rank {one.rank} {one.numbers:,}"
        else:
            return
        before = (other.site,) if other is not None and other.site != one.site else ()
        yield Finding(
            one.site,
            f"rank {one.rank} calls {one.what} here, and {there}: the ranks wait for different "
            "collectives",
            steps=1,
            seen_on=machine.device,
            facts=(
                ("collectives before it that all call", f"{parting.number:,}"),
                ("steps that rank had begun", f"{one.step:,}"),
            ),
            places=places_of(one.site, *before),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Left).loop:
            return Remedy(
                "Let all ranks leave the loop after the same step: give each as many batches (a "
                "DistributedSampler, drop_last=True) and reduce what decides an early stop over "
                "the ranks first, or train inside `with model.join():`."
            )
        return Remedy(
            "Call it on every rank, outside of `if rank == 0` and of branches on values that differ "
            "between ranks; only what is written or printed belongs there."
        )


@dataclass(frozen=True)
class Left:
    """Whether the ranks part since one of them left a loop."""

    loop: bool = False


def _left_alone(parting: Parting, waits: Call, source: Source, machine: Machine) -> Finding:
    one = parting.one
    loop, test = left_between(source, waits.site, one.site)
    where = f"rank {one.rank} calls {one.what} at {one.site} after {_steps(one.step)}"
    stays = f"rank {waits.rank} waits for gradients at {waits.site}"
    if loop is None:
        said = f"{where}, and {stays}"
    elif test is None:
        said = f"rank {one.rank} comes to the end of this loop first: {where}, while {stays}"
    else:
        said = f"rank {one.rank} leaves the loop, here or at its end: {where}, while {stays}"
    return Finding(
        test or loop or one.site,
        said,
        steps=1,
        seen_on=machine.device,
        facts=(("collectives before it that all call", f"{parting.number:,}"),),
        places=places_of(test or loop, waits.site, one.site),
        hints=Left(loop is not None),
    )


def _steps(number: int) -> str:
    return amounts.count(number, "step")
