"""Findings that a project has accepted, and what a report says of them. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["new", "unchanged"]
"""SARIF's words for a finding that is not in the baseline, and for one that is."""


@dataclass(frozen=True)
class Part:
    """One place of a finding as a baseline knows it: nothing of it changes when lines move.

    ``key`` is rule code, file and a hash of the line's text, as
    :func:`auditor.model.finding_key` makes it.
    """

    key: str
    function: str = ""


@dataclass(frozen=True)
class Accepted:
    """A finding of a baseline. ``target`` is what was run, empty for a trace or a snapshot;
    ``file`` and ``text`` are for people.
    """

    code: str
    target: str
    file: str
    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Baseline:
    """How a report compares with a baseline: its ``new`` and ``unchanged`` findings by number.

    ``gone`` are findings of the baseline that do not occur any more. ``unlooked`` counts those
    whose rules could not look this time, or did not have to.
    """

    file: str
    new: int
    unchanged: int
    gone: tuple[Accepted, ...] = ()
    unlooked: int = 0
