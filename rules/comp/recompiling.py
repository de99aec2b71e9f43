"""What the rules about recompilations have in common: who, and what to do about a guard."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.evidence.recorded.compiles import Compiles, Recompiled
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.model import Edit, Remedy, Site
from auditor.permit import Permit


def named(each: Recompiled) -> str:
    """The function in words."""
    return f"`{each.function}`" if each.function else "a compiled function"


def because(each: Recompiled) -> str:
    """What of this line changes. A guard of an argument has the line of the call."""
    where = "what is read here" if each.own else "what it is given here"
    return f"{where} changes (`{each.guard}`)"


def as_long_as(us: float, steps: Steps) -> str:
    """``as long as 1,300 steps`` where the steps without compilation are timed, and are shorter."""
    own = own_times([step for step in steps.quiet if not step.compiles])
    us_of_one = median(own) if own else 0.0
    if us_of_one <= 0.0 or us < 2 * us_of_one:
        return ""
    return f"as long as {amounts.digits(us / us_of_one)} steps"


EDITS = (Permit("drop_keyword", ("torch.compile", ".compile"), "dynamic"),)
"""What rules about recompilations may write."""


@dataclass(frozen=True)
class Hints:
    """The guard that failed, and the one line that forbids lengths to vary, if it is of a length."""

    guard: str
    fixed: Site | None


def hints(each: Recompiled, compiles: Compiles) -> Hints:
    """What the remedy needs."""
    fixed = compiles.fixed[0] if of_a_length(each.guard) and len(compiles.fixed) == 1 else None
    return Hints(each.guard, fixed)


def remedy(hints: Hints) -> Remedy:
    """What to do about a guard like this."""
    if hints.fixed is None:
        return Remedy(advice(hints.guard))
    reason = "kernels for lengths that vary may round another way"
    edit = Edit(hints.fixed, "drop_keyword", "compile", "dynamic", reason=reason)
    return Remedy(advice(hints.guard), (edit,))


def of_a_length(guard: str) -> bool:
    """Whether it asks how large a tensor is."""
    return "size mismatch" in guard or ".size()" in guard or "stride" in guard


def advice(guard: str) -> str:
    """The same in words."""
    if of_a_length(guard):
        return (
            "Let the length vary: drop dynamic=False, or name it with "
            "torch._dynamo.mark_dynamic(x, 1) before the call; or pad to a few fixed lengths."
        )
    if "'lr'" in guard:
        return "Make the learning rate a tensor: lr=torch.tensor(1e-3)."
    return (
        "Keep what changes on each step out of the compiled function, or hand it in as a tensor: "
        "a Python value that the function reads is part of what it was compiled for."
    )
