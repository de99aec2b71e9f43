"""NUM008: a formula that has a stable form, or that stood where its derivative is infinite, judged
by the values it was given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor.evidence import Machine, OpRanges, Source
from auditor.evidence.recorded.op_ranges import LARGEST, SMALLEST, Delicate
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .logarithm import STABLE_FORM, stable_log
from .poles import EPSILON_IN_ROOT, epsilon_in_root, pole_said, remedy_of

LOGARITHMS = frozenset({"log", "log2", "log10"})
ENDS = {"log": 0.0, "log2": 0.0, "log10": 0.0, "log1p": -1.0}
"""Where a logarithm is -inf; below, it is NaN."""

REMEDIES = {
    "sigmoid": "Write torch.nn.functional.logsigmoid(x): it never forms "
    "the probability that rounds to 0.",
    "softmax": "Write torch.log_softmax(x, dim): it never forms the probability that rounds to 0.",
    "sum of exp": "Write torch.logsumexp(x, dim): it subtracts the maximum first.",
    "exp": "Subtract the maximum first, stay in logarithms "
    "(logsumexp, log_softmax), or clamp what exp is given.",
}


@dataclass(frozen=True)
class Hints:
    """What to write instead, and as an edit where the line is simple enough."""

    text: str
    edit: Edit | None


@dataclass(frozen=True)
class UnstableFormula(Rule):
    """
    A formula loses its range where a stable form of it does not.

    ## What it finds
    ``log(sigmoid(x))``, ``log(softmax(x))`` and ``log(sum(exp(x)))`` in the forward pass, and
    ``exp`` of values near its overflow, where the result has a gradient. Decided from the values
    that ran: how much of the dtype's exponent range was used. Below a quarter of it the first two
    are a note (they break when the scores grow), the others are silent. An epsilon between the two
    silences it (see NUM012 for one that vanishes), and so does a maximum subtracted before ``exp``.

    A logarithm of zero or of negative numbers, where no loss that the precision pass saw was
    finite: the gradients may be finite all the same, so that the weights show nothing. An error.

    And a value at which a derivative is infinite: ``sqrt``, ``log`` or a fractional power of 0, a
    divisor that is 0, ``acos`` of 1, ``exp`` that overflows, also where ``torch.where`` then picks
    the other branch. Reported where the backward was seen to make a finite gradient non-finite
    there and a parameter's gradient was not finite afterwards, on any watched step. Silent where
    nothing asks for that gradient, or something sets it to 0 on its way. Norms of torch are 0
    there.

    ## Why it costs
    The probability rounds to 0 and its logarithm is -inf: from then on every weight is NaN. In
    float32 that takes scores of -88, in float16 of -17, which a run may reach after days. At an
    infinite derivative the whole step's gradients are lost: a guard or GradScaler skips it, and
    without one the weights are NaN (NUM002). ``torch.where`` does not help: the branch that it
    leaves out gets a gradient of 0, and 0 times infinity is NaN.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)

    def step():
        score = model(torch.ones(4, 8)) - 40
        (-torch.log(torch.sigmoid(score)).mean()).backward()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)

    def step():
        score = model(torch.ones(4, 8)) - 40
        (-torch.nn.functional.logsigmoid(score).mean()).backward()
    ```

    ## When to ignore
    The scores are bounded by construction (a tanh before them).

    ## Sources
    IEEE 754: exp overflows above the logarithm of the largest number, 88.7 in float32 and bfloat16,
    11.1 in float16; the smallest positive number is 1.4e-45, 9.2e-41, 6e-8. TorchFix has TOR108 for
    logsumexp, from the source alone. The shares are ours.
    """

    code = "NUM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = (STABLE_FORM, EPSILON_IN_ROOT)

    share: float = knob(
        0.25,
        "Share of the exponent range that a logarithm's input used from which it is a warning.",
    )
    exp_share: float = knob(
        0.5, "Share of the way to overflow that the input of exp went from which it is reported."
    )

    def detect(self, numerics: OpRanges, machine: Machine, source: Source) -> Iterator[Finding]:
        lost = list(_outside(numerics, machine))
        yield from lost
        found = list(self._formulas(numerics, machine, source))
        yield from (each for each in found if each.site not in {one.site for one in lost})
        yield from _poles(
            numerics,
            machine,
            source,
            {finding.site for finding in found if finding.severity is Severity.WARNING}
            | {finding.site for finding in lost},
        )

    def _formulas(self, numerics: OpRanges, machine: Machine, source: Source) -> Iterator[Finding]:
        calls = sorted(numerics.of("function"), key=_place)
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
                seen_on=machine.device,
                severity=severity,
                facts=call.facts,
                hints=Hints(
                    text=REMEDIES[_kind(call)],
                    edit=None if stable is None else stable.edit(site),
                ),
            )

    def _judged(self, call: Delicate) -> Severity | None:
        kind, used = _kind(call), _used(call)
        if not kind or used is None or call.guarded:
            return None
        if kind in ("sigmoid", "softmax"):
            return Severity.WARNING if used >= self.share else Severity.NOTE
        return (
            Severity.WARNING if used >= (self.exp_share if kind == "exp" else self.share) else None
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        hints = finding.hints_as(Hints)
        return Remedy(hints.text, () if hints.edit is None else (hints.edit,))


def _outside(numerics: OpRanges, machine: Machine) -> Iterator[Finding]:
    """Logarithms of what has none, where no loss was finite."""
    if not numerics.loss_lost:
        return
    calls = (
        call
        for call in numerics.of("function")
        if call.op in ENDS and call.low is not None and call.low <= ENDS[call.op]
    )
    for site, group in groupby(sorted(calls, key=_place), key=lambda call: call.site):
        here = [call for call in group if not call.guarded and not call.in_optimizer]
        if not here:
            continue
        worst = min(here, key=lambda call: call.low or 0.0)
        assert worst.low is not None
        made = "NaN" if worst.low < ENDS[worst.op] else "-inf"
        yield Finding(
            site,
            f"{worst.op} was given values down to {worst.low:.3g}, of which it makes {made}; the "
            f"loss was not finite in any of {numerics.loss_lost} backwards",
            steps=worst.steps,
            per_step=numerics.per_step(worst),
            seen_on=machine.device,
            severity=Severity.ERROR,
            facts=worst.facts,
            hints=Hints(
                "Give the logarithm what cannot leave its range: the absolute value, a clamp "
                "(clamp_min), or a parameter whose constraint keeps it positive (softplus).",
                None,
            ),
        )


def _poles(
    numerics: OpRanges, machine: Machine, source: Source, said: set[Site | None]
) -> Iterator[Finding]:
    """One for each line that is not reported already; of several operators the first."""
    for site, group in groupby(
        sorted(numerics.of("gradient"), key=_place), key=lambda call: call.site
    ):
        call = next(iter(group))
        if site in said:
            continue
        yield Finding(
            site,
            pole_said(call, numerics.steps),
            steps=call.steps,
            per_step=numerics.per_step(call),
            seen_on=machine.device,
            facts=call.facts,
            hints=Hints(remedy_of(call), epsilon_in_root(source, call)),
        )


def _place(call: Delicate) -> tuple[str, int]:
    return call.site.file, call.site.line


# -- what was seen ---------------------------------------------------------------------------------


def _kind(call: Delicate) -> str:
    if call.op in LOGARITHMS and call.feed in REMEDIES and call.feed != "exp":
        return call.feed
    return "exp" if call.op == "exp" else ""


def _used(call: Delicate) -> float | None:
    """Share of the dtype's exponent range that the input used; None where it says nothing (NaN,
    infinite, empty).
    """
    low, high = call.low, call.high
    if low is None or high is None or not (math.isfinite(high) and call.dtype in LARGEST):
        return None
    if call.op == "exp":
        return high / math.log(LARGEST[call.dtype])
    down = 1.0 if low <= 0 else math.log(low) / math.log(SMALLEST[call.dtype])
    up = math.log(high) / math.log(LARGEST[call.dtype]) if high > 0 else 0.0
    return max(down, up) if call.feed == "sum of exp" else down


def _said(call: Delicate) -> str:
    limit = math.log(LARGEST[call.dtype])
    if _kind(call) == "exp":
        return (
            f"exp was given values up to {call.high:.3g}, and {call.dtype} overflows at {limit:.1f}"
        )
    least = SMALLEST[call.dtype]
    if call.feed == "sum of exp":
        return (
            f"log(sum(exp(x))): the sum went from {call.low:.3g} to {call.high:.3g}, and overflows "
            f"where x reaches {limit:.1f}"
        )
    what = f"log({call.feed}(x)): the probability went down to {call.low:.3g}"
    assert call.low is not None  # of a probability that was seen
    if call.low <= 0:
        return f"{what} in {call.dtype}, where its logarithm is -inf"
    reach = min(limit, -math.log(least)) if call.feed == "sigmoid" else -math.log(least)
    where = "x is below" if call.feed == "sigmoid" else "x minus the row's maximum is below"
    return f"{what}; in {call.dtype} it is 0 once {where} about -{reach:.0f}"
