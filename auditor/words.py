"""Words of the command line that stand for something of our own: a size, a fault and its step. No torch here."""

from __future__ import annotations

import re
from typing import cast

import click

from auditor.plan import Drill, What

FAULT = re.compile(r"(nan|inf|oom|kill)@(\d{1,9})")


def fault(_: click.Context, __: click.Parameter, value: str) -> Drill:
    """``nan@12`` → a drill at step 12. Raises :class:`click.BadParameter`, whose message says how to write it."""
    match = FAULT.fullmatch(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a fault; write nan@12, inf@12, oom@12 or kill@12 (steps count from 0)")
    return Drill(cast("What", match[1]), int(match[2]))


SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])?(i?)B?", re.IGNORECASE)


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """``8GiB``, ``800MB`` or ``1000`` → bytes; at least one. Raises :class:`click.BadParameter`."""
    if value is None:
        return None
    match = SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write it as 8GiB, 800MB or a number of bytes")
    number, unit, binary = match.groups()
    base = 1024 if binary or not value.strip().upper().endswith("B") else 1000
    found = int(float(number) * base ** (" KMGT".index((unit or " ").upper())))
    if found < 1:
        raise click.BadParameter("the limit must be at least one byte")
    return found
