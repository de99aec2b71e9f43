"""What the rules about lines that read tensors share: how often is often, how one is reported."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from auditor.evidence.recorded.reads import Reads, ReadStatement
from auditor.evidence.source.files import Source, Span, name_of, shorten, span_of, unparsed
from auditor.model import Edit, Remedy, Severity, Site
from auditor.rule import knob
from auditor.syntax.index import LOOPS, Index, is_path, nodes_in
from auditor.syntax.reaching import shared_names

from .lines import LineReport

LOG_EVERY = 50
"""Steps between two logs in the patch: a wait then costs nothing, and a curve shows."""

THROTTLED = (
    f"the line only logs, so training computes the same; the log has every {LOG_EVERY}th step"
)
WRITTEN = f"the file it writes then has every {LOG_EVERY}th line, and something may read it"
SUMMED = (
    "the sum is then a tensor on the device, in the value's own precision (float32 for most "
    "losses) instead of float64"
)


OPTIONS = (
    (
        r"^torch/distributions/distribution\.py:(__init__|_validate_sample)$",
        (
            "The distribution checks its arguments and samples, and that check reads: create it with "
            "validate_args=False, or call torch.distributions.Distribution.set_default_validate_args("
            "False) once at the start."
        ),
    ),
    (
        r"^torchmetrics/functional/.*:_\w+_validation$",
        (
            "The metric checks its input, and that check reads: create the metric with "
            "validate_args=False."
        ),
    ),
    (
        r"^torchmetrics/aggregation\.py:_cast_and_nan_check_input$",
        'The metric looks for NaN in its input: create it with nan_strategy="disable".',
    ),
    (
        r"^transformers/trainer\.py:(_inner_training_loop|_run_epoch)$",
        (
            "The Trainer looks for NaN in the loss of each step: "
            "TrainingArguments(logging_nan_inf_filter=False) turns that off."
        ),
    ),
)
"""Functions of libraries that read only to check, and the option that turns it off (docs/targets.md)."""


@dataclass(frozen=True)
class ReadingRule(LineReport):
    """Base of the rules about reads; no rule itself."""

    cause = "read"

    share: float = knob(0.5, "Warn about lines that do it on at least this share of the steps.")
    rare: float = knob(0.1, "Report only if at least this share of the diagnosed steps does it.")
    interval: int = knob(10, "Do not report a fixed interval of at least this many steps.")
    enough: int = knob(10, "With fewer steps than this, report only what every step does.")

    def reads(
        self, places: Iterable[ReadStatement]
    ) -> Iterator[tuple[ReadStatement, Severity | None]]:
        """Those that read often enough; a note where that is not usual, or a library's doing."""
        for place in places:
            weight = place.pattern.weight(
                usual=self.share, rare=self.rare, interval=self.interval, enough=self.enough
            )
            if weight is not None:
                harmless = weight == "sometimes" or place.library
                yield place, Severity.NOTE if harmless else None

    def less_often(self, reads: Reads, source: Source, place: ReadStatement) -> Remedy:
        """What to do about a read that a patch can make seldom."""
        text, edit = self.instead(place), patch_of(source, place)
        below = None if edit is None else self._below(reads, source, place.site)
        if below is None:
            return Remedy(text, () if edit is None else (edit,))
        line = f"line {below.line}, `{shorten(below.text)}`,"
        return Remedy(
            text, refused=f"{line} reads the same value on each step and would wait instead"
        )

    def _below(self, reads: Reads, source: Source, site: Site) -> Site | None:
        """The first line of the same function that reads the same value further below on most steps,
        and has no patch: it would wait in the place of this one.
        """
        index = source.index(site.file)
        scope = index.scope_at(site.line)
        here = [
            place
            for place in reads.all_places
            if place.site.file == site.file and index.scope_at(place.site.line) is scope
        ]
        mine = frozenset[str]().union(*(_values(index, p) for p in here if p.site == site))
        for place in here:
            line = place.site.line
            if line <= site.line or not place.pattern.usual(self.share):
                continue
            same = (
                keeps_its_value(index, name, site.line, line)
                for name in mine & _values(index, place)
            )
            has_patch = place.act in ("scalar", "transfer") and patch_of(source, place)
            if any(same) and not has_patch:
                return place.site
        return None

    def instead(self, place: ReadStatement) -> str:
        """``advice`` for a line's own read; one inside a library cannot be written otherwise."""
        if place.library:
            known = [
                said
                for path, said in OPTIONS
                if any(re.search(path, each) for each in place.library.split(", "))
            ]
            if known:
                return " ".join(known)
            return (
                f"The read is inside {place.library}, which is not yours to edit: look for an option that "
                "makes it read less often (how often it logs, shows or checks), or call it on fewer "
                "steps."
            )
        if place.pattern.often:
            return (
                "In an evaluation, add up on the device and read once at its end. In a rollout, act in "
                "several environments at once, so that one read serves all of them, or keep a small "
                "policy on the host."
            )
        return self.advice


def patch_of(source: Source, place: ReadStatement) -> Edit | None:
    """Log every N steps, or sum on the device; None if the line does something else with
    the value. A line that runs several times in a step is in a loop of its own, which no counter of
    the steps is for.
    """
    site, once = place.site, all(row.n == 1 for row in place.rows)
    logs = source.logs_at(site) if once else None
    if logs is not None:
        own = _own_function(source, site)
        reason = THROTTLED if logs != "file" else WRITTEN
        reason = f"`{own}` is the program's own and may do more than read" if own else reason
        safe = logs != "file" and not own
        return Edit(site, "throttle", value=str(LOG_EVERY), safe=safe, reason=reason)
    summed = summed_read(source, site, within=not once)
    if summed is None:
        return None
    return Edit(site, "rename_call", "item", value="detach()", reason=SUMMED, span=summed)


def _own_function(source: Source, site: Site) -> str:
    """A function or property of the program's that the statement on a line may run; empty if none."""
    statements = [*source.index(site.file).on(site.line, ast.stmt)][-1:]
    used = [
        *(name_of(call.func) for call in nodes_in(statements, ast.Call)),
        *(each.attr for each in nodes_in(statements, ast.Attribute)),
    ]
    own = {function.name for _, function in source.functions}
    return next((name for name in used if name in own), "")


def _values(index: Index, place: ReadStatement) -> frozenset[str]:
    spans = {read.expression.span for read in place.reads}
    return frozenset[str]().union(*(values_at(index, span) for span in spans))


# -- running sums ----------------------------------------------------------------------------------

SINKS = frozenset({"print", "float", "str", "format", "add_scalar", "info", "debug"})
"""Calls that take a tensor of no dimensions as they take a number, and read it themselves."""

HOMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
INTEGER_FORMAT = re.compile(r"%[^%a-zA-Z]*[dioxXc]")
"""A ``%`` format that takes no tensor of floats."""

DEEPEST = 3
"""Names that a sum is handed on to (``mean = total / n``), one after another, at most."""


def summed_read(source: Source, site: Site, *, within: bool = False) -> Span | None:
    """Where the ``.item()`` of a running sum on the site's line stands; None if a tensor could not
    take the number's place, or another line would read it on each step instead. ``within``: the
    line runs several times in a step, so that its own loop is not the training's.
    """
    scopes = _Scopes(source.index(site.file))
    for node in source.index(site.file).on(site.line, ast.AugAssign):
        if isinstance(node.op, ast.Add):
            reads = [
                call for call in nodes_in(node.value, ast.Call) if name_of(call.func) == "item"
            ]
            if (
                len(reads) == 1
                and not reads[0].args
                and scopes.only_arithmetic(reads[0], node)
                and scopes.takes_a_tensor(node, within=within)
            ):
                return span_of(reads[0])
    return None


class _Scopes:
    """Who else in one file uses a name."""

    def __init__(self, index: Index) -> None:
        self.index, self.parents, self.up = index, index.parents, index.up

    def only_arithmetic(self, node: ast.AST, root: ast.AST) -> bool:
        """Between the read and the statement nothing but sums and products."""
        between = takewhile(lambda up: up is not root, self.up(node))
        return all(
            isinstance(each, ast.BinOp) and isinstance(each.op, ARITHMETIC) for each in between
        )

    def takes_a_tensor(self, summing: ast.AugAssign, *, within: bool) -> bool:
        """True if all other uses of the sum do, and none of them reads it on every step."""
        if not isinstance(summing.target, ast.Name):
            return False  # other readers of an attribute or an element cannot be seen
        scope = next(up for up in self.up(summing) if isinstance(up, HOMES))
        around = takewhile(lambda up: up is not scope, self.up(summing))
        loops = [up for up in around if isinstance(up, LOOPS)]
        loop = loops[-1 if within else 0] if loops else None
        if loop is None or summing.target.id in shared_names(scope):
            return False
        return self._all_fine(summing.target.id, scope, loop, DEEPEST)

    def _all_fine(self, name: str, scope: ast.AST, loop: ast.AST, deeper: int) -> bool:
        uses = [node for node in nodes_in(scope, ast.Name) if node.id == name]
        return deeper > 0 and all(self._fine(use, scope, loop, deeper) for use in uses)

    def _fine(self, use: ast.Name, scope: ast.AST, loop: ast.AST, deeper: int) -> bool:
        if isinstance(use.ctx, ast.Store):
            return True
        top, parent = self._arithmetic_around(use)
        if isinstance(parent, ast.Assign):
            target = parent.targets[0]
            if (
                len(parent.targets) > 1
                or not isinstance(target, ast.Name)
                or parent.value is not top
            ):
                return False
            return self._all_fine(target.id, scope, loop, deeper - 1)
        return self._is_read(top, parent) and not self._on_every_step(use, loop)

    def _arithmetic_around(self, use: ast.AST) -> tuple[ast.AST, ast.AST]:
        """The arithmetic that the use is part of, and what stands around it."""
        parent = self.parents[use]
        while isinstance(parent, ast.UnaryOp) or (
            isinstance(parent, ast.BinOp) and isinstance(parent.op, ARITHMETIC)
        ):
            use, parent = parent, self.parents[parent]
        return use, parent

    def _is_read(self, top: ast.AST, parent: ast.AST) -> bool:
        if isinstance(parent, ast.Call):
            return top is not parent.func and (
                name_of(parent.func) in SINKS or unparsed(parent.func).startswith("math.")
            )
        if isinstance(parent, ast.Tuple):
            parent = self.parents[parent]
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mod):
            text = parent.left.value if isinstance(parent.left, ast.Constant) else None
            return isinstance(text, str) and not INTEGER_FORMAT.search(text)
        return isinstance(parent, (ast.FormattedValue, ast.Compare))

    def _on_every_step(self, use: ast.AST, loop: ast.AST) -> bool:
        inside: ast.AST = use
        for up in self.up(use):
            if up is loop or isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return up is loop or up not in self.up(loop)  # callers of an inner one are unknown
            # ``i % 100 == 0``; a flag, a rank or a value may hold on each step
            test = up.test if isinstance(up, ast.If) and inside in up.body else ()
            if any(isinstance(each.op, ast.Mod) for each in nodes_in(test, ast.BinOp)):
                return False
            inside = up
        return False


# -- values read -----------------------------------------------------------------------------------

MODULES = frozenset({"torch", "math", "np", "numpy", "F"})

SAME = frozenset(("detach", "clone", "contiguous", "data", "cpu", "cuda", "to"))
"""Methods of a tensor whose result has all of its values."""


def unchanged(value: ast.expr) -> str:
    """The name of which an expression has all values: ``z`` of ``z.detach()``; empty for others."""
    value = whole(value)
    return unparsed(value) if isinstance(value, (ast.Name, ast.Attribute)) else ""


def whole(value: ast.expr) -> ast.expr:
    """What an expression has all values of: ``f(x)`` of ``f(x).detach().cpu()``."""
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in SAME
    ):
        value = value.func.value
    return value


def values_at(index: Index, span: Span | None) -> frozenset[str]:
    """Names of what an expression reads: ``loss`` of ``loss.detach().item()``, of
    ``math.isnan(loss)`` and of ``shown.item()`` where ``shown = loss.detach()`` is all it is given.
    """
    node = index.expressions.get(span) if span is not None else None
    return (
        frozenset() if node is None else frozenset(_own(index, each) for each in _each_value(node))
    )


def _own(index: Index, name: str) -> str:
    given = index.assigned.get(name, ())
    return (unchanged(given[0].value) or name) if len(given) == 1 else name


def _each_value(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        if is_path(node):
            yield unparsed(node)
        else:
            yield from _each_value(node.value)  # type: ignore[union-attr]
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and name_of(node.func.value) not in MODULES:
            yield from _each_value(node.func.value)
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _each_value(each)
    elif isinstance(node, ast.Subscript):
        yield from _each_value(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _each_value(child)


def keeps_its_value(index: Index, name: str, above: int, below: int) -> bool:
    """Whether nothing gives the name another value from one line to another one below it."""
    return not any(
        above <= node.lineno < below and isinstance(node.ctx, ast.Store) and unparsed(node) == name
        for node in index.named.get(name.rpartition(".")[2], ())
    )
