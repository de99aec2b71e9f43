"""NUM008: a formula that has a stable form, or that stood where its derivative is infinite, judged
by the values it was given.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor.evidence.recorded.amp import LARGEST, SMALLEST, OpRanges, facts_of
from auditor.evidence.source.files import Source, name_of, span_of
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import Rule, knob

from .logarithm import stable_log

LOGARITHMS = frozenset({"log", "log2", "log10"})
ENDS = {"log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0}
"""Where a logarithm is -inf; below, it is NaN."""

REMEDIES = {
    "sigmoid": "Write torch.nn.functional.logsigmoid(x): it never computes "
    "the probability that rounds to 0.",
    "softmax": "Write torch.log_softmax(x, dim): it never computes the probability that rounds to 0.",
    "sum of exp": "Write torch.logsumexp(x, dim): it subtracts the maximum first.",
    "exp": "Subtract the maximum first, stay in logarithms "
    "(logsumexp, log_softmax), or clamp exp's input.",
}


@dataclass(frozen=True)
class UnstableFormula(Rule):
    """A formula leaves its numeric range where a stable form of it would not."""

    code = "NUM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True

    share: float = knob(
        0.25,
        "Warn if a logarithm's input used this share of the exponent range.",
    )
    exp_share: float = knob(
        0.5, "Report if the input of exp went this share of the way to overflow."
    )

    def detect(self, numerics: OpRanges, source: Source) -> Iterator[Finding]:
        lost = list(_outside(numerics))
        yield from lost
        found = list(self._formulas(numerics, source))
        yield from (each for each in found if each.site not in {one.site for one in lost})
        yield from _poles(
            numerics,
            source,
            {finding.site for finding in found if finding.severity is Severity.WARNING}
            | {finding.site for finding in lost},
        )

    def _formulas(self, numerics: OpRanges, source: Source) -> Iterator[Finding]:
        calls = sorted(numerics.of("function"), key=lambda call: call.site.place)
        for site, group in groupby(calls, key=lambda call: call.site):
            judged = [
                (severity, call) for call in group if (severity := self._judged(call)) is not None
            ]
            if not judged:
                continue
            severity, call = min(judged, key=lambda pair: pair[0].rank)
            stable = stable_log(source, site) if call.feed in ("sigmoid", "softmax") else None
            yield Finding(
                site,
                _said(call),
                steps=call.steps,
                per_step=numerics.per_step(call),
                severity=severity,
                facts=facts_of(call),
                remedy=Remedy(
                    REMEDIES[_kind(call)], () if stable is None else (stable.edit(site),)
                ),
            )

    def _judged(self, call: NumericRow) -> Severity | None:
        kind, used = _kind(call), _used(call)
        if not kind or used is None or call.guarded:
            return None
        if kind in ("sigmoid", "softmax"):
            return Severity.WARNING if used >= self.share else Severity.NOTE
        return (
            Severity.WARNING if used >= (self.exp_share if kind == "exp" else self.share) else None
        )


def _outside(numerics: OpRanges) -> Iterator[Finding]:
    """Logarithms of what has none, where no loss was finite."""
    if not numerics.loss_lost:
        return
    calls = (
        call
        for call in numerics.of("function")
        if call.op in ENDS and call.low is not None and call.low <= ENDS[call.op]
    )
    for site, group in groupby(
        sorted(calls, key=lambda call: call.site.place), key=lambda call: call.site
    ):
        here = [call for call in group if not call.guarded and not call.in_optimizer]
        if not here:
            continue
        worst = min(here, key=lambda call: call.low or 0.0)
        assert worst.low is not None
        made = "NaN" if worst.low < ENDS[worst.op] else "-inf"
        yield Finding(
            site,
            f"{worst.op} got values down to {worst.low:.3g}, of which it makes {made}; the "
            f"loss was not finite in any of {numerics.loss_lost} backwards",
            steps=worst.steps,
            per_step=numerics.per_step(worst),
            severity=Severity.ERROR,
            facts=facts_of(worst),
            remedy=Remedy(
                "Give the logarithm a value that cannot leave its range: an absolute value, a clamp "
                "(clamp_min), or a parameter whose constraint keeps it positive (softplus)."
            ),
        )


def _poles(numerics: OpRanges, source: Source, said: set[Site | None]) -> Iterator[Finding]:
    """One for each line that is not reported already; of several operators the first."""
    for site, group in groupby(
        sorted(numerics.of("gradient"), key=lambda call: call.site.place),
        key=lambda call: call.site,
    ):
        call = next(iter(group))
        if site in said:
            continue
        edit = epsilon_in_root(source, call)
        yield Finding(
            site,
            pole_said(call, numerics.steps),
            steps=call.steps,
            per_step=numerics.per_step(call),
            facts=facts_of(call),
            remedy=Remedy(remedy_of(call), () if edit is None else (edit,)),
        )


# -- what was seen ---------------------------------------------------------------------------------


def _kind(call: NumericRow) -> str:
    if call.op in LOGARITHMS and call.feed in REMEDIES and call.feed != "exp":
        return call.feed
    return "exp" if call.op == "exp" else ""


def _used(call: NumericRow) -> float | None:
    """Share of the dtype's exponent range that was used; None where it says nothing (NaN)."""
    low, high = call.low, call.high
    if low is None or high is None or not (math.isfinite(high) and call.dtype in LARGEST):
        return None
    if call.op == "exp":
        return high / math.log(LARGEST[call.dtype])
    down = 1.0 if low <= 0 else math.log(low) / math.log(SMALLEST[call.dtype])
    up = math.log(high) / math.log(LARGEST[call.dtype]) if high > 0 else 0.0
    return max(down, up) if call.feed == "sum of exp" else down


def _said(call: NumericRow) -> str:
    limit = math.log(LARGEST[call.dtype])
    if _kind(call) == "exp":
        return f"exp got values up to {call.high:.3g}; {call.dtype} overflows at {limit:.1f}"
    least = SMALLEST[call.dtype]
    if call.feed == "sum of exp":
        return (
            f"log(sum(exp(x))): the sum went from {call.low:.3g} to {call.high:.3g}, and overflows "
            f"when x reaches {limit:.1f}"
        )
    what = f"log({call.feed}(x)): the probability went down to {call.low:.3g}"
    assert call.low is not None  # of a probability that was seen
    if call.low <= 0:
        return f"{what} in {call.dtype}, where its logarithm is -inf"
    reach = min(limit, -math.log(least)) if call.feed == "sigmoid" else -math.log(least)
    where = "x is below" if call.feed == "sigmoid" else "x minus the row's maximum is below"
    return f"{what}; in {call.dtype} it is 0 once {where} about -{reach:.0f}"


# -- poles -----------------------------------------------------------------------------------------

EPSILON = 1e-12
"""Below the square of what float32 resolves beside 1, and far above its smallest number: the slope
at 0 is 5e5.
"""

POLES = {
    "sqrt": "Add an epsilon inside the root (1e-12 in float32), or "
    "use torch.linalg.vector_norm for a vector's length: its gradient at 0 is 0.",
    "rsqrt": "Add an epsilon that the dtype can represent under the root.",
    "pow": "Add an epsilon to the base (1e-12 in float32), or clamp(min=...) it.",
    "div": "Keep the divisor away from 0: clamp(min=...) it if it is "
    "positive, or replace it by 1 where the quotient is not used.",
    "reciprocal": "Keep the divisor away from 0: clamp(min=...) it if it is "
    "positive, or replace it by 1 where the quotient is not used.",
    "exp": "Clamp exp's input below the overflow.",
    "acos": "Clamp its argument to -1 + 1e-6 and 1 - 1e-6, or use torch.atan2 of sine and cosine.",
    "asin": "Clamp its argument to -1 + 1e-6 and 1 - 1e-6, or use torch.atan2 of sine and cosine.",
}
LOGARITHM = (
    "Keep its input above 0: clamp(min=...) with a number that the dtype can represent, or a "
    "function that takes the score."
)
UNASKED = (
    "torch.where selects values, not gradients: select a harmless input first, as in "
    "torch.where(ok, f(torch.where(ok, x, torch.ones_like(x))), other)."
)


def remedy_of(call: NumericRow) -> str:
    """What to write instead."""
    text = POLES.get(call.op, LOGARITHM)
    return f"{UNASKED} {text}" if call.unasked else text


def pole_said(call: NumericRow, watched: int) -> str:
    """One sentence: where it stood, and what came of it."""
    result = (
        "its result was not used there, but 0 times infinity is NaN"
        if call.unasked
        else "its derivative there is infinite"
    )
    return (
        f"{_stood(call)}: {result}, and a parameter's gradient was not finite on {call.steps} of "
        f"{watched} watched steps"
    )


def _stood(call: NumericRow) -> str:
    """The range is that of all watched steps: NaN where one of them had a NaN."""
    if call.op in ("div", "reciprocal"):
        return "a divisor was 0"
    if call.op == "exp":
        return f"exp overflowed in {call.dtype}"
    if call.op in ("acos", "asin"):
        return f"{call.op} got 1 or -1 or more"
    name = f"a power of {call.scalar:.3g}" if call.op == "pow" else call.op
    below = call.low is not None and call.low < 0
    return f"{name} got values down to {call.low:.3g}" if below else f"{name} got 0"


def epsilon_in_root(source: Source, call: NumericRow) -> Edit | None:
    """``torch.sqrt(x + 1e-12)``; None where the line has no such call, or another dtype."""
    roots = [
        node
        for node in source.calls_at(call.site)
        if name_of(node.func) == "sqrt" and not node.keywords
    ]
    if (
        call.op != "sqrt"
        or call.low != 0
        or call.dtype not in ("float32", "float64")
        or len(roots) != 1
    ):
        return None
    node = roots[0]
    value = _with_epsilon(node)
    return None if value is None else _edit(call.site, node, value)


def _with_epsilon(node: ast.Call) -> str | None:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return None
    if isinstance(function.value, ast.Name) and function.value.id == "torch":
        if len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
            return None
        return f"sqrt({ast.unparse(ast.BinOp(node.args[0], ast.Add(), ast.Constant(EPSILON)))})"
    return (
        None
        if node.args or ast.unparse(function.value) in ("math", "np", "numpy")
        else f"add({EPSILON!r}).sqrt()"
    )


def _edit(site: Site, node: ast.Call, value: str) -> Edit:
    reason = "the root of 0 becomes 1e-6; elsewhere only the last digits can change"
    return Edit(
        site, "rename_call", name_of(node.func), value=value, reason=reason, span=span_of(node)
    )
