"""What ``torch.compile`` did, in words and rows that every renderer shows alike."""

from auditor import amounts
from auditor.model import Report
from auditor.model.sections import Compilation, CompiledPart

from . import text


def sentences(report: Report) -> tuple[str, ...]:
    """What was compiled, and what a step gains by it; nothing where nothing is compiled."""
    found = report.compilation
    if found is None:
        return ()
    during = f"{amounts.count(found.during, 'timed step')} still compiled." * (found.during > 0)
    return tuple(filter(None, (_compiled(found), during, _gained(found))))


def rows(report: Report) -> tuple[tuple[CompiledPart, str, str], ...]:
    """Each function or module, its options, and in how many steps it ran."""
    found = report.compilation
    if found is None:
        return ()
    return tuple(
        (
            each,
            text.one_line(each.options, 200),
            f"{each.steps} of {amounts.count(each.watched, 'step')}",
        )
        for each in found.parts
    )


def _compiled(found: Compilation) -> str:
    if not found.compiled:
        return "Nothing was compiled in the audited steps."
    said = f"{amounts.count(found.compiled, 'compilation')} in {amounts.duration(found.us)}"
    more = [
        f"{found.again} of them after a guard failed" if found.again else "",
        f"graph breaks at {amounts.count(found.breaks, 'line')}" if found.breaks else "",
    ]
    return ", ".join(filter(None, (said, *more))) + "."


def _gained(found: Compilation) -> str:
    gain = found.gain
    if gain is None:
        return ""
    eager = amounts.duration(gain.eager_us)
    if gain.low > 0.0:
        between = f"{amounts.duration(gain.low)} to {amounts.duration(gain.high)}"
        said = f"Compiling saves {amounts.duration(gain.us)} per step ({between})"
        paid = found.paid_after
        return f"{said} of {eager} without it, measured" + (
            f"; it pays off after {amounts.count(paid, 'step')}." if paid is not None else "."
        )
    if gain.high < 0.0:
        return (
            f"A compiled step is {amounts.duration(-gain.us)} slower than the {eager} without "
            "torch.compile, measured."
        )
    return f"No gain over the {eager} without torch.compile is proven."
