"""COMP002 and 3: frames that are compiled again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.compiles import Compiles, Recompiled
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..pricing import between


def named(each: Recompiled) -> str:
    """The function in words."""
    return f"`{each.function}`" if each.function else "a compiled function"


def because(each: Recompiled) -> str:
    """What of this line changes. A guard of an argument has the line of the call."""
    where = "a value read here" if each.own else "a value given here"
    return f"{where} changes (`{each.guard}`)"


def as_long_as(us: float, steps: Steps) -> str:
    """``as long as 1,300 steps`` where the steps without compilation are timed, and are shorter."""
    own = own_times([step for step in steps.quiet if not step.compiles])
    us_of_one = median(own) if own else 0.0
    if us_of_one <= 0.0 or us < 2 * us_of_one:
        return ""
    return f"as long as {amounts.digits(us / us_of_one)} steps"


def remedy(guard: str, compiles: Compiles) -> Remedy:
    """What to do about a guard like this: of a length, on the one line that forbids it to vary."""
    if not of_a_length(guard) or len(compiles.fixed) != 1:
        return Remedy(advice(guard))
    reason = "kernels for varying lengths may round differently"
    edit = Edit(compiles.fixed[0], "drop_keyword", "compile", "dynamic", reason=reason)
    return Remedy(advice(guard), (edit,))


def of_a_length(guard: str) -> bool:
    """Whether it asks how large a tensor is."""
    return "size mismatch" in guard or ".size()" in guard or "stride" in guard


def advice(guard: str) -> str:
    """The same in words."""
    if of_a_length(guard):
        return (
            "Allow the length to vary: drop dynamic=False, or mark it with "
            "torch._dynamo.mark_dynamic(x, 1) before the call; or pad to a few fixed lengths."
        )
    if "'lr'" in guard:
        return "Make the learning rate a tensor: lr=torch.tensor(1e-3)."
    return (
        "Keep what changes on each step out of the compiled function, or pass it as a tensor: "
        "a function is compiled for each Python value it reads."
    )


@dataclass(frozen=True)
class RecompilesAgainAndAgain(Rule):
    """A function is recompiled again and again because one value changes"""

    code = "COMP002"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(
        2, "Report only if one guard failed on this many steps: the compiler learns from the first."
    )

    def detect(self, compiles: Compiles, steps: Steps) -> Iterator[Finding]:
        reached = {each.function for each in compiles.recompiled if each.limit}
        for each in compiles.recompiled:
            if each.steps < self.least or each.function in reached:
                continue
            as_long = as_long_as(each.us, steps)
            yield Finding(
                each.site,
                f"{named(each)} was recompiled on {amounts.count(each.steps, 'step')} because "
                f"{because(each)}: {amounts.duration(each.us)} of compilation"
                + (f", {as_long}" if as_long else ""),
                facts=(
                    ("failed guard", each.guard),
                    ("compilations for it", str(each.n)),
                    ("time of these", amounts.duration(each.us)),
                ),
                remedy=remedy(each.guard, compiles),
            )


@dataclass(frozen=True)
class RecompileLimitReached(Rule):
    """A function was recompiled too often and has run eagerly since"""

    code = "COMP003"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, compiles: Compiles, steps: Steps) -> Iterator[Finding]:
        reached = [each for each in compiles.recompiled if each.limit]
        for each in reached:
            price = _price(reached, steps)
            lost = price.value if price is not None else None
            found = Finding(
                each.site,
                f"torch.compile gave up on {named(each)} after too many recompilations, and it "
                f"has run eagerly since: {because(each)}"
                + (f"; a step has been {amounts.duration(lost)} slower since" if lost else ""),
                lost_us_per_step=lost,
                basis="none" if lost is None else "measured",
                facts=(
                    ("failed guard", each.guard),
                    ("times it failed", str(each.n)),
                    ("compilation time", amounts.duration(each.us)),
                ),
                remedy=remedy(each.guard, compiles),
            )
            yield between(found, price)


def _price(reached: list[Recompiled], steps: Steps) -> Estimate | None:
    """What a step lost by it, where that is proven: of one function, given up in the timing pass.
    Where lengths vary, later steps may have more to do.
    """
    (only, *others) = reached
    if others or only.since is None or of_a_length(only.guard):
        return None
    price = steps.slower_after(only.since)
    return price if price is not None and price.proven else None
