"""The step by module, in words and rows that every renderer shows alike."""

from collections.abc import Iterable, Iterator

from auditor import amounts
from auditor.model import Report
from auditor.model.sections import ByModule, ModuleUse

from . import text

_TOP, _LEAST, _PATH = 3, 0.001, 60


def basis(report: Report) -> str:
    """What the shares are of."""
    if report.by_module and not report.by_module.timed:
        return "the step's FLOPs"
    return "the diagnostic pass"


def rates(report: Report) -> str:
    """Samples, tokens and operations per second; empty if unknown."""
    found = report.by_module
    if found is None:
        return ""
    said = (
        (found.samples_per_s, f"{amounts.digits(found.samples_per_s or 0)} samples/s"),
        (found.tokens_per_s, f"{amounts.digits(found.tokens_per_s or 0)} tokens/s"),
        (found.flops_per_s, f"{amounts.operations(found.flops_per_s or 0)}/s"),
        (found.peak, f"{amounts.percent(found.peak or 0)} of the GPU's peak (MFU)"),
    )
    return ", ".join(words for known, words in said if known)


def every(uses: Iterable[ModuleUse]) -> Iterator[ModuleUse]:
    """These modules and all inside them."""
    for use in uses:
        yield use
        yield from every(use.inside)


def outside(found: ByModule) -> float:
    """Share of the step that is no module's."""
    return max(0.0, 1.0 - sum(use.forward + use.backward for use in found.modules))


def lines(report: Report) -> Iterator[str]:
    """The costliest modules, each without its submodules."""
    found = report.by_module
    if found is None:
        return
    told = (use for use in every(found.modules) if use.own >= _LEAST)
    for use in sorted(told, key=lambda each: -each.own)[:_TOP]:
        times = f" x{use.alike}" if use.alike > 1 else ""
        at = f", {text.path(str(use.site))}" if use.site else ""
        kind = text.one_line(use.kind, 40)
        yield f"{amounts.percent(use.own)} {text.one_line(use.path, _PATH)} ({kind}{times}{at})"
    yield f"{amounts.percent(outside(found))} outside of modules"


def sentence(report: Report) -> str:
    """Rates and costliest modules on one line."""
    return "; ".join(filter(None, (rates(report), *lines(report))))
