"""Numbers with their units, as people read them: three significant digits, never more."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

_PASSES = {
    "warmup": "warm-up",
    "quiet": "timing pass",
    "anomaly_off": "timing pass without anomaly mode",
    "eager_held": "timing pass without torch.compile",
    "compiled_again": "timing pass, compiled again",
    "trace": "profiler pass",
    "loud": "diagnostic pass",
    "leaner": "what-if pass",
    "numbers": "precision pass",
    "gradients": "gradient pass",
    "memory": "memory pass",
    "values": "value pass",
    "replay": "replay",
    "drill": "drill",
    "reproduce": "compared run",
}

_FLOPS = (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def pass_named(name: str) -> str:
    """A pass as people read it: ``timing pass`` for ``quiet``; an unknown name stays."""
    return _PASSES.get(name, name)


def duration(us: float) -> str:
    """``us`` as ``412 us``, ``12.4 ms`` or ``1.24 s``."""
    unit, scale = _unit(us)
    return f"{digits(us / scale)} {unit}"


def within(us: float, low: float | None, high: float | None) -> str:
    """A duration and its interval, in its own unit: ``12.4 ms [11.9 to 13.1]``; or without one."""
    if low is None or high is None:
        return duration(us)
    unit, scale = _unit(us)
    return f"{digits(us / scale)} {unit} [{digits(low / scale)} to {digits(high / scale)}]"


def _unit(us: float) -> tuple[str, float]:
    for unit, scale in (("us", 1.0), ("ms", 1e3)):
        if abs(us) < 999.5 * scale:
            return unit, scale
    return "s", 1e6


def size(count: float) -> str:
    """``count`` bytes in binary units: ``512 MiB``."""
    power = 0
    while abs(count) >= 1023.5 and power < len(_SIZES) - 1:
        count /= 1024
        power += 1
    whole = power == 0 and abs(count) >= 1  # an average over steps; there is no part of a byte
    return f"{digits(round(count) if whole else count)} {_SIZES[power]}"


def operations(count: float) -> str:
    """``1.61 GFLOP``: floating-point operations; empty for none."""
    unit, scale = next(((u, n) for u, n in _FLOPS if count >= n), _FLOPS[-1])
    return f"{digits(count / scale)} {unit}" if count else ""


def digits(value: float) -> str:
    """Three significant digits without an exponent: ``0.0124``, ``12.4``, ``1,240``."""
    if not math.isfinite(value):
        return "?"
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{min(decimals, 6)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def percent(share: float) -> str:
    """A share of 1 as ``32%``; small ones keep a digit, and only nothing is shown as nothing."""
    if not math.isfinite(share):
        return "?"
    if 0 < share < 0.001:
        return "<0.1%"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 finding``, ``2 findings``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def some(words: Iterable[str], most: int = 5, of: int | None = None) -> str:
    """The first ``most``, and the rest as a number: ``a, b and 3 more``; ``of``: how many."""
    every = list(words)
    more = (len(every) if of is None else of) - most
    return ", ".join(every[:most]) + (f" and {more:,} more" if more > 0 else "")


def from_to(first: str, last: str) -> str:
    """An amount over the steps of a pass: at the first and at the last, once if both are alike."""
    return first if first == last else f"{first} at first, {last} at the end"


def moment(recorded_at: str) -> str:
    """An ISO 8601 time as ``2026-11-21 15:04 UTC``; what is not one comes back as it is."""
    try:
        when = datetime.fromisoformat(recorded_at)
    except ValueError:
        return recorded_at
    if when.tzinfo is None:
        return when.strftime("%Y-%m-%d %H:%M")
    try:
        return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except OverflowError:
        return recorded_at
