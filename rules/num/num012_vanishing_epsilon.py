"""NUM012: an epsilon that is zero, or protects nothing, in the dtype in which it is used."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor.evidence.recorded.amp import LARGEST, SMALLEST, OpRanges, facts_of, vanishes
from auditor.evidence.source.files import Source, name_of
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import Rule

from .logarithm import stable_log

ROOTS = frozenset({"rsqrt"})
"""Operators whose derivative grows as ``epsilon ** -1.5``."""

POLES = frozenset(
    "log log2 log10 div reciprocal rsqrt sqrt pow addcdiv foreach_addcdiv foreach_div".split()
)
"""Operators that zero is bad for, in the forward or in the derivative: elsewhere a lost epsilon is
only a note.
"""

INSTEAD = {
    "sigmoid": "logsigmoid(x.float()) needs no epsilon: it is exact where "
    "log(sigmoid(x) + eps) is not.",
    "softmax": "log_softmax(x.float(), dim) needs no epsilon: it is exact "
    "where log(softmax(x) + eps) is not.",
}

KEYWORDS = {
    "clamp": "min",
    "clamp_min": "min",
    "clamp_": "min",
    "clamp_min_": "min",
    "normalize": "eps",
}
"""Functions of torch whose epsilon is a keyword, so that a patch can set it."""


STEEP = Remedy(
    "An epsilon of 1e-6 still limits the derivative, and is small compared with the mean square of "
    "any real input."
)


@dataclass(frozen=True)
class EpsilonVanishes(Rule):
    """An epsilon rounds to zero in the dtype of the sum."""

    code = "NUM012"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    def detect(self, numerics: OpRanges, source: Source) -> Iterator[Finding]:
        calls = sorted(numerics.of("epsilon"), key=lambda call: call.site.place)
        for site, group in groupby(calls, key=lambda call: call.site):
            here = list(group)
            gone = [call for call in here if vanishes(call)]
            chosen = gone or [call for call in here if _steep(call)]
            if not chosen:
                continue
            call = chosen[0]
            yield Finding(
                site,
                _vanishes(call) if gone else _too_steep(call),
                steps=call.steps,
                per_step=sum(numerics.per_step(each) for each in chosen),
                severity=None
                if any(POLES.intersection(each.into) for each in gone)
                else Severity.NOTE,
                facts=(("epsilon", f"{call.scalar:g}"), *facts_of(call)),
                remedy=_remedy(call, source) if gone else STEEP,
            )


def _remedy(call: NumericRow, source: Source) -> Remedy:
    if call.feed in INSTEAD:
        stable = stable_log(source, call.site, cast=call.half)
        return Remedy(INSTEAD[call.feed], () if stable is None else (stable.edit(call.site),))
    least = {"float16": "1e-4", "bfloat16": "1e-6"}.get(call.dtype, "1e-12")
    if call.in_optimizer:
        return Remedy(
            "Keep the optimizer's parameters in float32 (autocast casts them), or pass "
            f"eps={least}."
        )
    text = (
        "Compute this in float32 (.float() before it), or use an epsilon that the dtype can "
        f"represent, such as {least}."
    )
    given = _keyword(call, source)
    if given is None:
        return Remedy(text)
    reason = "the result changes if the value is near zero"
    return Remedy(text, (Edit(call.site, "set_keyword", *given, least, reason=reason),))


# -- what is said ----------------------------------------------------------------------------------


def _vanishes(call: NumericRow) -> str:
    what = (
        "the optimizer's epsilon"
        if call.in_optimizer
        else "a lower bound"
        if "clamp" in call.op
        else "an added epsilon"
    )
    then = (
        f"; the value it should protect goes into {' and '.join(call.into)}"
        if call.into and not call.in_optimizer
        else ""
    )
    return (
        f"{what} of {call.scalar:g} is 0 in {call.dtype}, whose smallest number is "
        f"{SMALLEST[call.dtype]:.1g}{then}"
    )


def _steep(call: NumericRow) -> bool:
    """Where its input is 0, the derivative is beyond the root of the largest number."""
    return bool(ROOTS.intersection(call.into)) and _slope(call) > LARGEST[call.dtype] ** 0.5


def _slope(call: NumericRow) -> float:
    return 0.5 / (call.scalar * math.sqrt(call.scalar)) if call.scalar > 0 else math.inf


def _too_steep(call: NumericRow) -> str:
    return (
        f"an epsilon of {call.scalar:g} under rsqrt lets its derivative grow to {_slope(call):.0e} "
        f"at an input of 0: a product of two of these exceeds {call.dtype}"
    )


def _keyword(call: NumericRow, source: Source) -> tuple[str, str] | None:
    """The call on the line whose keyword holds the epsilon, and that keyword."""
    for node in () if call.in_optimizer else source.calls_at(call.site):
        name = name_of(node.func)
        keyword = KEYWORDS.get(name)
        given = {each.arg: each.value for each in node.keywords}
        if keyword is None or (keyword == "min" and keyword not in given):
            continue
        value = given.get(keyword)
        if value is None or (isinstance(value, ast.Constant) and value.value == call.scalar):
            return name, keyword
    return None
