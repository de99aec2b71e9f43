"""NUM002: a NaN or an infinity that reached a gradient or a parameter, where it was born."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule

from ..lines import places_of
from .nonfinite import Nonfinite

REMEDIES = {
    "exp": "Limit exp's input: subtract the maximum first, stay "
    "in logarithms (logsumexp, log_softmax), or clamp it.",
    "log": "Keep the logarithm's input above 0: use log_softmax or "
    "logsigmoid instead of the log of a probability, or clamp(min=...) "
    "with a number that its dtype can represent.",
    "sqrt": "Add an epsilon inside the root: at 0 its derivative is infinite, below 0 it is NaN.",
    "div": "Keep the divisor away from 0 with an epsilon that its dtype can represent, or "
    "clamp(min=...).",
    "mul": "0 times infinity is NaN: use masked_fill or torch.where "
    "instead of multiplying by an infinity.",
    "softmax": "If every entry of a row is masked, its softmax is NaN: "
    "leave such rows out, or mask with a large finite number.",
    "product": "Clip the gradients between backward and step (clip_grad_norm_), lower the learning "
    "rate, or normalize: over many products in a row, weights a little too large grow without bound.",
    "optimizer": "Lower the learning rate, or clip the gradients: the "
    "update itself left the range of the parameters.",
    "input": "Find the sample: check isfinite in the dataset or the collate function.",
    "": "Check the ranges of the inputs, and limit the one that leaves the range of its dtype.",
}
"""By the kind of the operator that made the value."""


@dataclass(frozen=True)
class NonfiniteValueBorn(Rule):
    """A NaN or an infinity appears and reaches the weights."""

    code = "NUM002"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True
    everywhere = True

    def detect(self, nonfinite: Nonfinite) -> Iterator[Finding]:
        if nonfinite.step is None:
            return
        birth = nonfinite.birth
        if birth is not None and (birth.came_with_data or birth.was_there):
            return  # NUM015, NUM013
        yield Finding(
            birth.site if birth is not None else None,
            f"{_born(nonfinite)}; {_reached(nonfinite)}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            facts=nonfinite.facts,
            remedy=Remedy(REMEDIES[birth.kind if birth is not None else ""]),
            places=_places(nonfinite),
        )


def _places(nonfinite: Nonfinite) -> tuple[FoundAt, ...]:
    """With the line of the optimizer's step, where clipping belongs before it and there is none."""
    birth, step = nonfinite.birth, nonfinite.unclipped
    if birth is None or birth.site is None or step is None or not birth.ran_away:
        return ()
    return places_of(birth.site, step)


# -- what is said ----------------------------------------------------------------------------------


def _born(nonfinite: Nonfinite) -> str:
    birth = nonfinite.birth
    if birth is None:
        again = "" if nonfinite.replayed else " (not seen again in a replay)"
        return f"a non-finite value appeared by step {nonfinite.step}{again}"
    value = _called(birth.value)
    if not birth.made:
        return (
            f"{value} that the program wrote on purpose (a single number or a mask) was first used here "
            f"at step {birth.step}"
        )
    if birth.fill:
        how = "left in memory" if "empty" in birth.op else "written"
        return f"{value} was {how} by {birth.op} at step {birth.step}"
    cause = birth.cause
    return f"{birth.operator} produced {value} at step {birth.step}{f' ({cause})' if cause else ''}"


def _called(value: str) -> str:
    return "NaN" if value == "nan" else value


def _reached(nonfinite: Nonfinite) -> str:
    birth, more = nonfinite.birth, nonfinite.count - 1
    when = (
        "then"
        if birth is not None and birth.step == nonfinite.step
        else f"after step {nonfinite.step}"
    )
    tensors = [f"{tensor} was {_called(tensor.value)}" for tensor in nonfinite.tensors[:1]]
    guarded = (
        "; the weights were spared, but evaluation is not finite from then on"
        if any(tensor.what == "buffer" for tensor in nonfinite.tensors)
        else ""
    )
    unclipped = (
        f"; nothing clips the gradients before the optimizer steps at {nonfinite.unclipped}"
        if birth is not None and birth.ran_away and nonfinite.unclipped is not None
        else ""
    )
    return (
        f"{when} {tensors[0] if tensors else 'a tensor was not finite'}"
        f"{f', and {more} more' if more else ''}{guarded}{unclipped}"
    )
