"""Words of the command line that stand for something of our own: a fault and its step. No torch here."""

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
