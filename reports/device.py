"""Where the time of a trace's device went, in words and rows that every renderer shows alike."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Report
from auditor.model.sections import COPYING, EXPOSED, IDLE, CopyUse, DeviceTime, QueueUse

from . import text

FULL = 0.9
"""Busy share from which a report opens with it: what the host does can then win a tenth at most."""

_KINDS = 3
"""Kinds of copies that a terminal shows."""

_QUALIFIED = re.compile(r"\b(?:[A-Za-z_]\w*::)+")

NOTED = 0.1
"""Share of the step from which communication or copies that nothing hides are named with it."""


@dataclass(frozen=True)
class DeviceRow:
    """One line of a table: what, time per step, share of the step (0 to 1), and more."""

    name: str
    time: str
    share: float
    said: str = ""

    @property
    def percent(self) -> str:
        """The share in words."""
        return amounts.percent(self.share)


def opening(report: Report) -> str:
    """First sentence of a report on a busy device; empty if the device is less busy, or missing."""
    found = report.device_time
    if found is None or not FULL <= found.busy <= 1:
        return ""
    whole = "the steps' time" if found.steps else "the time from its first work to its last"
    worked, left = (
        f"The device worked for {_floor(found.busy)} of {whole}",
        amounts.percent(found.share_of(IDLE)),
    )
    large = (
        (name, found.share_of(part))
        for part, name in ((EXPOSED, f"{EXPOSED} is"), (COPYING, f"{COPYING} are"))
    )
    told = " and ".join(
        f"{name} {amounts.percent(share)}" for name, share in large if share >= NOTED
    )
    if told:
        return f"{worked}: {told}. Look there first; launches and loading cost at most {left}."
    return f"{worked}: little can be saved on the host (launches, waits, loading), at most {left}."


def _floor(share: float) -> str:
    return f"{int(share * 1000) / 10:g}%" if share >= 0.995 else amounts.percent(share)


def heading(report: Report) -> str:
    """``Each step on NVIDIA A100``, and which rank of several; empty without a device."""
    found = report.device_time
    if found is None:
        return ""
    device = text.one_line(found.device, 80) or "the device"
    rank = f" of rank {found.rank}" if len(report.ranks) > 1 and found.rank is not None else ""
    return f"{'Each step' if found.steps else 'From first to last work'} on {device}{rank}"


def parts(found: DeviceTime) -> list[DeviceRow]:
    """Parts that are there; they add up to the step."""
    of_communication = f"of {amounts.duration(found.communication_us)} in collectives"
    return [
        DeviceRow(
            text.one_line(part.name, 80),
            amounts.duration(part.us),
            part.share,
            of_communication if part.name == EXPOSED else "",
        )
        for part in found.parts
        if part.us > 0
    ]


def copies(found: DeviceTime) -> list[DeviceRow]:
    """Copies by kind, hidden or not."""
    step_us = found.step_us or 1.0
    return [
        DeviceRow(
            text.one_line(copy.kind, 80), amounts.duration(copy.us), copy.us / step_us, _moved(copy)
        )
        for copy in found.copies
    ]


def _moved(copy: CopyUse) -> str:
    """``25 x 2.7 MiB at 8.37 GB/s``."""
    if copy.bytes is None or not copy.per_step:
        return _times(copy.per_step, "time")
    rate = f" at {copy.gbs:.3g} GB/s" if copy.gbs else ""
    return f"{amounts.digits(copy.per_step)} x {amounts.size(copy.bytes / copy.per_step)}{rate}"


def _times(number: float, noun: str) -> str:
    return f"{amounts.digits(number)} {noun}{'s' * (number != 1)}"


def queue(found: QueueUse | None) -> str:
    """The launch queue in a sentence; empty if nothing is known of it."""
    if found is None:
        return ""
    usual = f"usually {amounts.count(found.median, 'kernel')} waiting, {found.most:,} at most"
    return f"{usual}; {amounts.percent(found.empty)} of the kernels found it empty"


def host(found: DeviceTime) -> str:
    """What the host waited for, and the device's peak, in a sentence; empty without either."""
    told = [
        f"{what} {amounts.duration(us)}"
        for what, us in (
            ("waits for its loader", found.loader_us or 0.0),
            ("waits until the device has caught up", found.held_us),
        )
        if us > 0
    ]
    peak = f"peak memory {amounts.size(found.peak_bytes)}" if found.peak_bytes else ""
    return "; ".join(part for part in (f"the host {', '.join(told)}" if told else "", peak) if part)


def kernels(found: DeviceTime, width: int) -> list[DeviceRow]:
    """The costliest kernels, their names no longer than about ``width``."""
    return [
        DeviceRow(
            kernel_name(one.name, width),
            amounts.duration(one.us),
            one.share,
            _times(one.calls, "call"),
        )
        for one in found.kernels
    ]


def kernel_name(name: str, width: int) -> str:
    """A kernel's name without return type, namespaces and parameters, cut to ``width``."""
    short = _QUALIFIED.sub(
        "", name[:4096].removeprefix("void ").replace("(anonymous namespace)::", "")
    )
    depth = 0
    for place, char in enumerate(short):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth <= 0 and place:
            short = short[:place]
            break
    short = text.one_line(short.strip(), 4096)
    return short if len(short) <= width else f"{short[: width - 3].rstrip()}..."


def lines(report: Report, width: int) -> Iterator[str]:
    """The table as a terminal shows it; nothing without a device."""
    found = report.device_time
    if found is None:
        return
    yield f"{heading(report)} ({amounts.duration(found.step_us)}):"
    groups = (("", parts(found)), ("copies", copies(found)[:_KINDS]))
    names = max(
        (len(row.name) + 2 * bool(title) for title, rows in groups for row in rows), default=0
    )
    for title, rows in groups:
        if title and rows:
            yield f"  {title}:"
        for row in rows:
            name = f"{'  ' if title else ''}{row.name}"
            yield f"  {name:<{names}}  {row.time:>8}  {row.percent:>5}  {row.said}".rstrip()
    costliest = kernels(found, max(24, width - 36))
    if costliest:
        yield "  costliest kernels:"
    calls = max((len(row.said) for row in costliest), default=0)
    for row in costliest:
        yield f"    {row.time:>8}  {row.percent:>5}  {row.said:>{calls}}  {row.name}"
    for said in (f"launch queue: {queue(found.queue)}" if found.queue else "", host(found)):
        yield from textwrap.wrap(said, width, initial_indent="  ", subsequent_indent="    ")
