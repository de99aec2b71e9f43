"""COMP001 to 6: how a compiled model is used, and compiled again."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.compiles import CompiledRegions, Compiles, Recompiled, Region
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.source.compile_calls import CompileCall, call_past, compile_call
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..lines import between


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
    """The remedy for a failed guard."""
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

    least: int = knob(2, "Report only if one guard failed on at least this many steps.")

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
                facts=(("failed guard", each.guard),),
                remedy=remedy(each.guard, compiles),
            )


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
                facts=(("failed guard", each.guard),),
                remedy=remedy(each.guard, compiles),
            )
            yield between(found, price)


def _price(reached: list[Recompiled], steps: Steps) -> Estimate | None:
    """What a step lost by it, where that is proven: of one function given up in the timing pass."""
    (only, *others) = reached
    if others or only.since is None or of_a_length(only.guard):
        return None
    price = steps.slower_after(only.since)
    return price if price is not None and price.proven else None


MEANT = ("graph_break()", "disable", "backward")
"""In reasons for breaks that the program asks for, or that no other line would avoid: a call of
``torch._dynamo.graph_break``, what is kept out of the graph, and a backward inside a region."""

KINDS: dict[str, tuple[str, str, str]] = {
    "item": (
        "Tensor.item()",
        "it reads a tensor's value on the host",
        "Keep it a tensor (drop .item()), or set torch._dynamo.config.capture_scalar_outputs = True.",
    ),
    "list": (
        "Tensor.tolist()",
        "it reads a tensor's values on the host",
        "Keep them a tensor, or read them outside the compiled function.",
    ),
    "branch": (
        "Data-dependent",
        "Python branches here on a tensor's value",
        "Write it without a branch: torch.where(condition, a, b), torch.clamp, or torch.cond.",
    ),
    "autocast": (
        "autocast",
        "autocast is entered here in a way that the compiler cannot trace",
        "Enter it with `with torch.autocast(...):`, inside or outside; neither breaks the graph.",
    ),
    "print": (
        "`print`",
        "it prints here",
        "Move it out of the compiled function, or guard it: if not torch.compiler.is_compiling().",
    ),
}
"""Kind -> what the compiler's reason has in it, the reason in plain words, and what to do."""

OTHER = (
    "Move the call out of the compiled function, or rewrite it so that the compiler can trace "
    "it (TORCH_LOGS=graph_breaks prints all reasons)."
)


class GraphBreak(Rule):
    """A line breaks a torch.compile graph"""

    code = "COMP001"
    severity = Severity.WARNING
    since = "0.1"
    cause = "read"  # of a line that reads a value, the rules of SYNC say what the wait costs
    leads = 5

    def detect(self, compiles: Compiles) -> Iterator[Finding]:
        for each in compiles.breaks:
            if not (each.own or each.lost) or any(word in each.reason for word in MEANT):
                continue
            kind = next((kind for kind, (word, *_) in KINDS.items() if word in each.reason), "")
            why = KINDS[kind][1] if kind else each.reason.partition(". ")[0].rstrip(".")
            of = f" of `{each.function}`" if each.function else ""
            what = f"breaks the torch.compile graph{of}"
            if each.lost:
                what = f"makes torch.compile skip `{each.function}` altogether"
            yield Finding(
                each.site,
                f"this line {what}: {why}",
                facts=(("the compiler says", each.reason), ("its code", each.gb or "none")),
                remedy=Remedy(KINDS[kind][2] if kind else OTHER),
            )


@dataclass(frozen=True)
class CompiledUnused(Rule):
    """Something is compiled, but the original runs"""

    code = "COMP004"
    severity = Severity.WARNING
    since = "0.1"

    enough: int = knob(5, "Report only after this many steps without the compiled code.")

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, source: Source
    ) -> Iterator[Finding]:
        if not compiles.compiled and not compiles.breaks:
            yield from self._made_nothing(regions)
        for each in regions.regions:
            if each.steps or each.called or each.watched < self.enough:
                continue
            call = compile_call(source, each.site)
            if each.dropped:
                said = "the result of torch.compile is not kept"
            elif each.trained and not regions.ran and _meant_for_training(each, call):
                said = "the compiled code never ran, though its parameters are trained"
            else:
                continue
            past = call_past(source, each.site)
            yield Finding(
                each.site,
                f"{said}: `{each.what}` runs without the compiler"
                + (f" (called at line {past.line})" if past is not None else ""),
                remedy=_remedy(call.argument if call is not None else "", each.method),
            )

    def _made_nothing(self, regions: CompiledRegions) -> Iterator[Finding]:
        """Modules whose code the compiler does not look at, one for each line."""
        ran = [each for each in regions.regions if each.torchs and each.method]
        for each in {each.site: each for each in ran if each.steps >= self.enough}.values():
            yield Finding(
                each.site,
                f"nothing is compiled here: `{each.what}` is a class of torch, which this version does "
                "not compile in place",
                remedy=Remedy(
                    "Pass the module to torch.compile(module) and call the result, or "
                    "compile in place a module of your own class that calls it."
                ),
            )


def _remedy(argument: str, method: bool) -> Remedy:
    """By the text of what the line compiles, if any, and whether it is ``Module.compile``."""
    if method:
        return Remedy(
            "Call the module itself, model(x): model.forward(x) bypasses the compiler and hooks."
        )
    name = argument if argument.isidentifier() else "model"
    return Remedy(
        f"Write {name} = torch.compile({name}) before anything else gets the module; or compile it "
        f"in place, {name}.compile(), if its class is your own: then every reference runs compiled."
    )


def _meant_for_training(region: Region, call: CompileCall | None) -> bool:
    if region.method:
        return True
    return call is not None and bool(call.target) and (call.replaces or not call.read)


@dataclass(frozen=True)
class CompiledInStep(Rule):
    """torch.compile is called inside the step"""

    code = "COMP005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Compile once, before the loop, and call the result. A function that is defined "
        "in the step can take what changes as arguments."
    )

    least: int = knob(3, "Report only from this many steps on (stages compile once each).")
    share: float = knob(0.25, "Report only if at least this share of the passes' steps called it.")

    def detect(self, regions: CompiledRegions, steps: Steps) -> Iterator[Finding]:
        taken = len(steps.quiet) + len(steps.anomaly_off)
        for each in regions.in_steps:
            if each.made_on < max(self.least, self.share * taken):
                continue
            yield Finding(
                each.site,
                f"`{each.what or 'a function'}` is passed to torch.compile on "
                f"{amounts.count(each.made_on, 'step')}",
                lost_us_per_step=each.us,
                basis="measured",
            )


DEBUGGING = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends that make no code: they are for finding out which part of the compiler fails."""

NO_CODE = "Drop backend=...: only the default, 'inductor', generates code; or do not compile."


@dataclass(frozen=True)
class CompileDoesNotPay(Rule):
    """The step is slower with torch.compile than without"""

    code = "COMP006"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Compile larger parts (the model instead of its layers, the step with the optimizer), or "
        "nothing. Fix graph breaks first, and measure again."
    )

    share: float = knob(0.02, "Report only if it costs at least this share (interval's lower end).")

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, steps: Steps
    ) -> Iterator[Finding]:
        if any(each.limit for each in compiles.recompiled):
            return  # COMP003 says why
        if not compiles.compiled:
            return  # COMP004 says why
        gained = steps.gained_by_compile()
        running = [each for each in regions.regions if each.steps]
        if gained is None or not running:
            return
        lost = Estimate(-gained.value, -gained.high, -gained.low)
        if not lost.proven or steps.share_of_step(lost.low) < self.share:
            return
        for_debugging = (
            name
            for name in DEBUGGING
            if all(f"backend={name!r}" in each.options for each in running)
        )
        backend = next(for_debugging, "")
        found = Finding(
            running[0].site,
            f"without torch.compile the step takes {amounts.duration(lost.value)} less"
            + (f": the backend {backend!r} generates no code" if backend else ""),
            lost_us_per_step=lost.value,
            basis="measured",
            remedy=Remedy(NO_CODE if backend else self.advice),
        )
        yield between(found, lost)
