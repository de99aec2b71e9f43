"""NUM008 and 12: a formula that has a stable form, or that stood where its derivative is infinite,
judged by the values it was given, and an epsilon that is zero in its dtype.
"""

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.amp import LARGEST, SMALLEST, OpRanges, facts_of, vanishes
from auditor.evidence.source.files import Source, name_of, span_of, the_only
from auditor.evidence.table import by_line
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import Rule, knob

ROOTS = frozenset({"rsqrt"})
"""Operators whose derivative grows as ``epsilon ** -1.5``."""

BAD_FOR_ZERO = frozenset(
    "log log2 log10 div reciprocal rsqrt sqrt pow addcdiv foreach_addcdiv foreach_div".split()
)
"""Operators that zero is bad for, forward or derivative: elsewhere a lost epsilon is a note."""

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


class EpsilonVanishes(Rule):
    """An epsilon rounds to zero in the dtype of the sum."""

    code = "NUM012"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    def detect(self, numerics: OpRanges, source: Source) -> Iterator[Finding]:
        for here in by_line(numerics.of("epsilon")):
            gone = [call for call in here if vanishes(call)]
            # where its input is 0, the derivative is beyond the root of the largest number
            chosen = gone or [
                call
                for call in here
                if ROOTS.intersection(call.into) and _slope(call) > LARGEST[call.dtype] ** 0.5
            ]
            if not chosen:
                continue
            call = chosen[0]
            yield Finding(
                call.site,
                _vanishes(call) if gone else _too_steep(call),
                steps=call.steps,
                per_step=sum(numerics.per_step(each) for each in chosen),
                severity=None
                if any(BAD_FOR_ZERO.intersection(each.into) for each in gone)
                else Severity.NOTE,
                facts=(("epsilon", f"{call.scalar:g}"), *facts_of(call)),
                remedy=_remedy(call, source) if gone else STEEP,
            )


def _remedy(call: NumericRow, source: Source) -> Remedy:
    if call.feed in INSTEAD:
        stable = stable_log(source, call.site, cast=call.half)
        return Remedy(INSTEAD[call.feed], () if stable is None else (stable,))
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


STABLE = {"sigmoid": "nn.functional.logsigmoid", "softmax": "log_softmax"}
"""By what is undone: the function below ``torch`` that computes both at once."""

REASON = "the same in exact arithmetic; where the old one rounds to 0 or is -inf, this one is right"


def stable_log(source: Source, site: Site, *, cast: bool = False) -> Edit | None:
    """What replaces ``torch.log(torch.sigmoid(x) + eps)`` on the line; None if it is no one
    ``torch.log`` expression. ``cast``: to float32.
    """
    for call in source.calls_at(site):
        of_torch = (
            isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == "torch"
        )
        if of_torch and name_of(call.func) == "log" and len(call.args) == 1 and not call.keywords:
            value = _stable(call.args[0], cast=cast)
            if value is not None:
                return _instead(site, call, value, REASON)
    return None


def _stable(inner: ast.expr, *, cast: bool) -> str | None:
    """``log_softmax(x, -1)`` for ``torch.softmax(x, -1) + 1e-8`` and for ``x.softmax(-1)``."""
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
        sides = (inner.left, inner.right)
        large = the_only(each for each in sides if not isinstance(each, ast.Constant))
        return _stable(large, cast=cast) if large is not None else None
    if not isinstance(inner, ast.Call) or name_of(inner.func) not in STABLE:
        return None
    function, given = inner.func, list(inner.args)
    if isinstance(function, ast.Attribute) and not _is_module(function.value):
        given.insert(0, function.value)
    if not given or any(isinstance(each, ast.Starred) for each in given):
        return None
    texts = [ast.unparse(each) for each in given]
    if cast:
        tight = isinstance(given[0], ast.Name | ast.Call | ast.Attribute | ast.Subscript)
        texts[0] = f"{texts[0] if tight else f'({texts[0]})'}.float()"
    texts += [
        f"{each.arg}={ast.unparse(each.value)}" if each.arg else f"**{ast.unparse(each.value)}"
        for each in inner.keywords
    ]
    return f"{STABLE[name_of(function)]}({', '.join(texts)})"


def _is_module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "F", "nn.functional", "torch.nn.functional", "functional")


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
    """A formula overflows or underflows where a numerically stable form would not."""

    code = "NUM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True

    share: float = knob(0.25, "Warn if a logarithm's input has at least this share of the range.")
    exp_share: float = knob(0.5, "Report exp if its input is at least this near to overflow.")

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
        for here in by_line(numerics.of("function")):
            judged = [
                (severity, call) for call in here if (severity := self._judged(call)) is not None
            ]
            if not judged:
                continue
            severity, call = min(judged, key=lambda pair: pair[0].rank)
            site = call.site
            stable = stable_log(source, site) if call.feed in ("sigmoid", "softmax") else None
            yield Finding(
                site,
                _message(call),
                steps=call.steps,
                per_step=numerics.per_step(call),
                severity=severity,
                facts=facts_of(call),
                remedy=Remedy(REMEDIES[_kind(call)], () if stable is None else (stable,)),
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
    for here in by_line(call for call in calls if not call.guarded and not call.in_optimizer):
        worst = min(here, key=lambda call: call.low or 0.0)
        assert worst.low is not None
        made = "NaN" if worst.low < ENDS[worst.op] else "-inf"
        yield Finding(
            worst.site,
            f"{worst.op} got values down to {worst.low:.3g}, which become {made}; the "
            f"loss was not finite in any of {numerics.loss_lost} backward passes",
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
    for call, *_ in by_line(numerics.of("gradient")):
        if call.site in said:
            continue
        edit = epsilon_in_root(source, call)
        yield Finding(
            call.site,
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
    """Share of the dtype's exponent range that was used; None if it says nothing (NaN)."""
    low, high = call.low, call.high
    if low is None or high is None or not (math.isfinite(high) and call.dtype in LARGEST):
        return None
    if call.op == "exp":
        return high / math.log(LARGEST[call.dtype])
    down = 1.0 if low <= 0 else math.log(low) / math.log(SMALLEST[call.dtype])
    up = math.log(high) / math.log(LARGEST[call.dtype]) if high > 0 else 0.0
    return max(down, up) if call.feed == "sum of exp" else down


def _message(call: NumericRow) -> str:
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
"""Below the square of float32's step at 1, far above its smallest number: slope 5e5 at 0."""

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
    """``torch.sqrt(x + 1e-12)``; None if the line has no such call, or another dtype."""
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
    value = _with_epsilon(roots[0])
    reason = "the root of 0 becomes 1e-6; elsewhere only the last digits can change"
    return None if value is None else _instead(call.site, roots[0], value, reason)


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


def _instead(site: Site, node: ast.Call, value: str, reason: str) -> Edit:
    """What replaces the whole call by ``value``, after its prefix."""
    return Edit(
        site, "rename_call", name_of(node.func), value=value, reason=reason, span=span_of(node)
    )
