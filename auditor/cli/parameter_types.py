"""Words as people write them: ``8GiB``, ``5%``, ``nan@12``, ``-m package.module``."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from auditor.errors import AuditProblem
from auditor.runs.plan import Drill, What

if TYPE_CHECKING:  # generic for the type checker; at run time only in the newest click
    _WholeType = click.ParamType[int]
    _SecondsType = click.ParamType[float]
    _DeviceType = click.Choice[str]
else:
    _WholeType = _SecondsType = click.ParamType
    _DeviceType = click.Choice

FAULT = re.compile(r"(nan|inf|oom|kill)@(\d{1,9})")

SECONDS = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|sec|m|min|h)?")
UNITS = {"h": 3600.0, "m": 60.0}

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])?(i?)B?", re.IGNORECASE)


def size(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Bytes: ``8GiB`` is binary, ``800MB`` decimal, a bare ``8G`` binary."""
    if value is None:
        return None
    match = SIZE.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not a size; write it as 8GiB, 800MB or a number of bytes"
        )
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
    """``nan@12`` → a drill at step 12. Raises :class:`click.BadParameter`."""
    match = FAULT.fullmatch(value.strip().lower())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not a fault; write nan@12, inf@12, oom@12 or kill@12 (steps count from "
            "0)"
        )
    return Drill(cast("What", match[1]), int(match[2]))


class Whole(_WholeType):
    """A whole number from ``least`` to ``most``, said without the words of a parser."""

    name = "N"

    def __init__(self, least: int, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number. Raises :class:`click.BadParameter`, whose message says what is wanted."""
        wanted = f"a whole number from {self.least} " + (
            f"to {self.most}" if self.most is not None else "up"
        )
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = None
        if number is None or number < self.least or (self.most is not None and number > self.most):
            self.fail(f"{value} is not {wanted}", param, ctx)
        return number


class Seconds(_SecondsType):
    """Seconds: ``90``, ``90s``, ``5m`` or ``1h``; above zero, unless ``zero`` means something."""

    name = "S"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number of seconds. Raises :class:`click.BadParameter` that says what is wanted."""
        match = SECONDS.fullmatch(str(value).strip().lower())
        seconds = (
            float(match[1]) * UNITS.get((match[2] or "s")[0], 1.0)
            if match is not None
            else math.nan
        )
        if not (seconds > 0 or (seconds == 0 and self.zero)):
            self.fail(
                f"{value} is not a time{'' if self.zero else ' above zero'}; write seconds, or "
                "90s, 5m, 1h",
                param,
                ctx,
            )
        return seconds


class Device(_DeviceType):
    """What the step may use. The environment says which GPU it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """One of the choices. Raises :class:`click.BadParameter` that names them."""
        kind, colon, number = str(value).lower().partition(":")
        if kind in ("cuda", "gpu") and colon and number.isdigit():
            self.fail(
                f"{value}: which GPU it is, the environment says: CUDA_VISIBLE_DEVICES={number} "
                "and --device cuda",
                param,
                ctx,
            )
        if kind == "gpu":
            self.fail(f"{value}: a GPU is called cuda here", param, ctx)
        return super().convert(value, param, ctx)


def folder(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """A folder for results that can be made. Raises :class:`AuditProblem`."""
    if value is not None:
        require_place("--out", Path(value) / "report.json")
    return value


def formats(
    _: click.Context, __: click.Parameter, value: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """``sarif=audit.sarif`` as name and file, no file: stdout. Raises if it cannot be written."""
    from auditor.judging.catalogue import FORMATS

    pairs = []
    for word in value:
        name, equals, file = word.partition("=")
        name = name.strip().lower()
        if name == "html":
            raise click.BadParameter(
                "the page is always written, as report.html in the folder of --out"
            )
        if name not in FORMATS:
            example = (
                f"; write it as {FORMATS[2]}={name or word[1:]}" if not name or "." in name else ""
            )
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)}{example}")
        if equals and not file:
            raise click.BadParameter(f"{word} names no file; leave out the = to print it")
        if file and os.path.isdir(file):
            raise AuditProblem(
                f"--format {word}: {file} is a folder",
                f"name a file in it: {name}={os.path.join(file, 'audit.' + name)}",
            )
        if file:
            require_place(f"--format {word}", Path(file))
        pairs.append((name, file))
    return tuple(pairs)


def require_place(option: str, file: Path) -> None:
    """Raise :class:`AuditProblem` if ``file`` cannot be made or written."""
    for parent in file.parents:
        if parent.is_dir():
            if not os.access(parent, os.W_OK | os.X_OK):
                raise AuditProblem(
                    f"{option}: {parent} may not be written to", "choose another place"
                )
            return
        if os.path.lexists(parent):
            raise AuditProblem(
                f"{option}: {parent} is a file; it must be a folder",
                "choose another place, or remove the file",
            )


def codes(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Rules and families between commas, in capitals."""
    return tuple(word.strip().upper() for word in value.split(",") if word.strip()) if value else ()
