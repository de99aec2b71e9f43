"""What a replay of a trace leaves out, and says of the findings together."""

from dataclasses import dataclass
from typing import Literal

ChangeKind = Literal[
    "waits",
    "calls",
    "copies to device",
    "copies to host",
    "collectives",
    "loader",
    "host gaps",
    "optimizer launches",
    "other launches",
    "launches",
]

OVERLAPS = 0.02
"""Share by which single prices may miss the joint one before they overlap: rounding loses less."""


@dataclass(frozen=True)
class Change:
    """One thing that a replay of the trace leaves out to price a finding.

    ``rows`` are rows of the timeline's waits (``waits``) or of its runtime calls (``calls``); the
    other kinds are about the whole trace and have none.
    """

    kind: ChangeKind
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class PricedFix:
    """One row of the table of savings, in us per step.

    ``alone_us`` is the saving of this fix alone, ``after_us`` the saving after the fixes above it
    in the table. ``code``, ``key``, ``message`` and ``place`` (file and line, empty if there is
    none) are the finding's.
    """

    code: str
    key: str
    message: str
    place: str
    alone_us: float
    after_us: float


@dataclass(frozen=True)
class WhatIf:
    """What a replay of the trace says of its findings together. Times in us per step, with its part
    of what the device still did after the last step.

    ``reason`` says why the replay gives no price; then ``fixes`` is empty. ``fixes`` begin with the
    largest single saving.
    """

    recorded_us: float = 0.0
    replayed_us: float = 0.0
    """Time per step of the replay with nothing left out."""
    joint_us: float = 0.0
    """Joint saving of all fixes: the sum of their ``after_us``."""
    alone_us: float = 0.0
    """The sum of their ``alone_us``, which is no price."""
    fixes: tuple[PricedFix, ...] = ()
    reason: str = ""

    @property
    def overlap(self) -> bool:
        """Whether the single prices do not add up to the joint one."""
        missed = abs(self.alone_us - self.joint_us)
        return missed > OVERLAPS * max(self.alone_us, self.joint_us)
