"""Quantities as people write them on the command line: ``8GiB``, ``5%``, ``nan@12``."""

from __future__ import annotations

import re
from typing import cast

import click

from auditor.plan import Drill, What

FAULT = re.compile(r"(nan|inf|oom|kill)@(\d{1,9})")

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])?(i?)B?", re.IGNORECASE)


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``8GiB`` is binary, ``800MB`` decimal, a bare ``8G`` binary."""
    if value is None:
        return None
    match = SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size; write it as 8GiB, 800MB or a number of bytes")
    number, unit, binary = match.groups()
    base = 1024 if binary or not value.strip().upper().endswith("B") else 1000
    size = int(float(number) * base ** (" KMGT".index((unit or " ").upper())))
    if size < 1:
        raise click.BadParameter("the limit must be at least one byte")
    return size


def share(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A share of 1 from a percentage, with or without its sign."""
    if value is None:
        return None
    try:
        share = float(value.strip().removesuffix("%")) / 100
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a percentage; write it as 5%") from None
    if not 0 <= share < 100:
        raise click.BadParameter("the bound must be at least 0%")
    return share


def fault(_: click.Context, __: click.Parameter, value: str) -> Drill:
    """``nan@12`` → a drill at step 12. Raises :class:`click.BadParameter`, whose message says how to write it."""
    match = FAULT.fullmatch(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a fault; write nan@12, inf@12, oom@12 or kill@12 (steps count from 0)")
    return Drill(cast("What", match[1]), int(match[2]))
