"""Whether ``torch.compile`` would pay (COMP010): a program that does not compile is run with its
model compiled, and with the repeated blocks of it compiled, and proposed is what is proven.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from auditor import amounts, patch
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Evidence
from auditor.extensions.verify.budget import Budget
from auditor.extensions.verify.intervals import LEAST_PAIRS
from auditor.extensions.verify.results import TOLERANCE, Agreement, agree, largest_difference
from auditor.extensions.verify.search import AS_IT_IS, Grid, Setting
from auditor.extensions.verify.times import quiet_run
from auditor.extensions.verify.trials import Compiling, Measured
from auditor.model import Edit, Site
from auditor.model.verification import Proposal
from auditor.patch import PatchedFile
from auditor.permit import OPTIMIZERS, last
from auditor.recordings.folder import Recording
from auditor.syntax.index import called_in, grouped, is_path, nodes_in, owner_of

# -- compile places --------------------------------------------------------------------------------
# Where a program could compile what it trains: one line before its optimizer is made, or one line
# in the class of blocks that its model repeats.


WHOLE, BLOCKS = "the model", "its repeated blocks"
"""What is compiled."""

REASON = "compiled code rounds in another order, and draws other random numbers"
_OPTIMIZERS = frozenset(map(last, OPTIMIZERS))
_PARAMETERS = ("parameters", "named_parameters")
_REPEATING = ("ModuleList", "Sequential")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def places(source: Source) -> dict[str, tuple[Edit, ...]]:
    """The edits that compile each part in place (``Module.compile()``, which keeps the names of
    weights); parts without a place are left out.
    """
    found = {WHOLE: tuple(_before_optimizers(source)), BLOCKS: tuple(_in_blocks(source))}
    return {part: edits for part, edits in found.items() if edits}


# -- before the optimizer --------------------------------------------------------------------------


def _before_optimizers(source: Source) -> Iterator[Edit]:
    for file in source.texts:
        done: set[tuple[str, str]] = set()
        for statement, around in _statements(source, file):
            if not _makes_optimizer(statement):
                continue
            modules = _modules(statement) or _modules_before(statement, around)
            where = around.name if around is not None else ""
            if len(modules) == 1 and (where, modules[0]) not in done:
                done.add((where, modules[0]))
                yield _edit(source, Site(file, statement.lineno, where), modules[0])


def _statements(source: Source, file: str) -> Iterator[tuple[ast.stmt, _Function | None]]:
    """Simple statements that run once, each with the function around it."""
    pending: list[tuple[ast.AST, _Function | None]] = [
        (node, None) for node in source.nodes(file) if isinstance(node, ast.Module)
    ]
    while pending:
        node, around = pending.pop()
        if isinstance(node, _SIMPLE):
            yield node, around
        elif not isinstance(node, ast.For | ast.AsyncFor | ast.While):
            inner = node if isinstance(node, _Function) else around
            inside = [each for each in ast.iter_child_nodes(node) if not _is_leaf(each)]
            pending += [(child, inner) for child in reversed(inside)]


def _is_leaf(node: ast.AST) -> bool:
    return isinstance(node, ast.expr | ast.expr_context | ast.operator | ast.alias)


def _makes_optimizer(statement: ast.stmt) -> bool:
    calls = nodes_in(statement, ast.Call)
    return any(name_of(call.func) in _OPTIMIZERS and call.args for call in calls)


def _modules(statement: ast.AST) -> tuple[str, ...]:
    """What is asked for its parameters, in order: names and attributes of names."""
    asked = (
        owner_of(call)
        for call in nodes_in(statement, ast.Call)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _PARAMETERS
        and is_path(call.func)
    )
    return tuple(dict.fromkeys(asked))


def _modules_before(statement: ast.stmt, around: _Function | None) -> tuple[str, ...]:
    """The same of the function's earlier statements, where groups of parameters are made first."""
    if around is None:
        return ()
    earlier = (each for each in around.body if each.lineno < statement.lineno)
    return tuple(dict.fromkeys(module for each in earlier for module in _modules(each)))


def _edit(source: Source, site: Site, module: str) -> Edit:
    lines = source.texts[site.file].split("\n")
    text = lines[site.line - 1].strip() if site.line <= len(lines) else ""
    where = Site(site.file, site.line, site.function, text)
    return Edit(where, "insert_before", value=f"{module}.compile()", reason=REASON)


# -- in repeated blocks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Class:
    file: str
    node: ast.ClassDef


def _in_blocks(source: Source) -> Iterator[Edit]:
    """Of the outermost classes that are repeated: behind the line that makes the module."""
    classes = grouped((node.name, _Class(file, node)) for file, node in source.every(ast.ClassDef))
    repeated = {name for name in _repeated(source) if len(classes.get(name, ())) == 1}
    for name in sorted(repeated):
        (cls,) = classes[name]
        others = (classes[other][0] for other in repeated - {name})
        if not any(name in called_in(other.node) for other in others):
            yield from _behind_init(source, cls)


def _repeated(source: Source) -> Iterator[str]:
    """Classes that a comprehension makes one after the other for a list of modules."""
    for _, call in source.calls_of(*_REPEATING):
        for node in nodes_in(call.args, ast.ListComp, ast.GeneratorExp):
            if isinstance(node.elt, ast.Call):
                yield name_of(node.elt.func)


def _behind_init(source: Source, cls: _Class) -> Iterator[Edit]:
    """Before the statement that follows ``super().__init__()``."""
    init = next(
        (
            each
            for each in cls.node.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        ),
        None,
    )
    if init is None or not init.args.args:
        return
    for one, following in zip(init.body, init.body[1:], strict=False):
        if isinstance(one, ast.Expr) and _is_super_init(one.value):
            if isinstance(following, _SIMPLE):
                site = Site(cls.file, following.lineno, f"{cls.node.name}.__init__")
                yield _edit(source, site, init.args.args[0].arg)
            return


def _is_super_init(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and isinstance(node.func.value, ast.Call)
        and name_of(node.func.value.func) == "super"
    )


# -- compiling -------------------------------------------------------------------------------------


CODE = "COMP010"
TITLE = f"{CODE}: torch.compile"

LEAST_STEP_US = 2000.0
"""Of shorter steps there is little to gain by what takes half a minute to compile: a third of such
a step pays for that after 45,000 of them."""

NO_FASTER = 1.05
"""What is so much slower in its first run, with everything compiled, is not run again."""

FEWEST_RUNS = 2 + 2 * LEAST_PAIRS
"""The first compilation of one part, the run before it, and the pairs of an interval: what is not
likely to get so far is not begun."""

DROPPED = "dropped"

COMPILERS = ("g++", "clang++", "c++", "cl")
"""C++ compilers, one of which the default backend needs. ``CXX`` names another."""


class Laboratory(Protocol):
    """Makes runs that compile; see :class:`auditor.extensions.verify.trials.Laboratory`."""

    def run(self, patched: Sequence[PatchedFile] = (), *, compiling: Compiling) -> Measured:
        """One run."""


def selected(select: Collection[str]) -> bool:
    """Whether the codes or families that were chosen have it; all are where none is."""
    return not select or CODE in select or CODE.rstrip("0123456789") in select


def has_compiler() -> bool:
    """Whether a C++ compiler is to be found."""
    wanted = os.environ.get("CXX", "").split()[:1]
    return any(shutil.which(each) for each in wanted or COMPILERS)


def search_for(evidence: Evidence) -> Search | None:
    """The search that a recorded program asks for; None where it compiles already, its steps are
    short, nothing could be timed, no compiler is there, or no line is found that could compile.
    """
    recording = evidence.recording
    if recording.input != "run" or recording.device.simulated or not evidence.has("regions"):
        return None
    if any(recording.rows("regions")) or any(recording.rows("compiles")):
        return None
    times = quiet_run(evidence).us
    if not times or median(times) < LEAST_STEP_US or not has_compiler():
        return None
    found = {
        part: (edits, files)
        for part, edits in places(evidence.get(Source)).items()
        if (files := _patched(recording, edits))
    }
    return Search(recording, found) if found else None


def _patched(recording: Recording, edits: Sequence[Edit]) -> tuple[PatchedFile, ...]:
    """The files with all of the edits; none where one of them cannot be made."""
    planned = patch.plan(edits, recording.original_bytes)
    return () if planned.refused else planned.files


class Search:
    """The search for one recorded program. ``parts`` has edits and patched files of each part that
    can be compiled.
    """

    def __init__(
        self,
        recording: Recording,
        parts: dict[str, tuple[tuple[Edit, ...], tuple[PatchedFile, ...]]],
    ) -> None:
        self._recording = recording
        self._parts = parts
        self._cold: dict[str, Measured] = {}
        self._dropped: dict[str, str] = {}
        self._agreements: dict[str, Agreement] = {}
        self._differences: dict[str, float] = {}

    @property
    def values(self) -> int:
        """How many settings a round has, and one more for what is compiled first."""
        return 2 + len(self._parts)

    def run(
        self, laboratory: Laboratory, budget: Budget, say: Callable[[str], None]
    ) -> tuple[Proposal | None, str]:
        """The best part with what it buys, where one is proven; and what came out in a sentence."""
        if not budget.fits(FEWEST_RUNS):
            return None, f"{TITLE}: not tried, the budget left no time for it"
        say(self._announced(budget))
        before = budget.measured(lambda: laboratory.run(compiling=Compiling("unpatched")))
        if before.failed or not before.step_us:
            return None, f"{TITLE}: not to be had, {before.failed or 'no step was timed'}"
        for part in self._parts:
            say(f"{TITLE}: {part}, the first compilation")
            self._compile(laboratory, part, before, budget)

        def measured(setting: Setting) -> Measured:
            part = _part(setting)
            say(f"{TITLE}: {part or 'as it is'}")
            files = self._parts[part][1] if part else ()
            return laboratory.run(files, compiling=Compiling(_folder(part)))

        left = [_setting(part) for part in self._parts if part not in self._dropped]
        grid = Grid(left, measured)
        grid.measure(budget)
        return self._answer(grid)

    def _announced(self, budget: Budget) -> str:
        runs = 1 + len(self._parts) + LEAST_PAIRS * (1 + len(self._parts))
        length = budget.length()
        takes = f" of about {length:.0f} s" if length is not None else ""
        left = max(0.0, budget.seconds - budget.spent)
        first = amounts.count(len(self._parts), "first compilation")
        return (
            f"{TITLE}: {runs} runs{takes} at least and {first} (often half a minute each), in the "
            f"{left:.0f} s that are left"
        )

    # -- the first compilation ---------------------------------------------------------------------

    def _compile(self, laboratory: Laboratory, part: str, before: Measured, budget: Budget) -> None:
        """Fill the part's caches, see how long that takes, and whether the result is the same."""
        cold = self._first(laboratory, part, budget)
        if cold is None:
            return
        self._cold[part] = cold
        said = agree(before.results, cold.results, TOLERANCE, REASON)
        apart = largest_difference(before.results, cold.results)
        if not said.same:
            said, apart = self._with_equal_draws(laboratory, part, before, budget)
        self._agreements[part], self._differences[part] = said, apart
        if not said.same:
            self._dropped[part] = f"{DROPPED}: another result, {said.note}"
        elif (cold.step_us or 0.0) > NO_FASTER * (before.step_us or 0.0):
            took = amounts.duration(cold.step_us or 0.0)
            self._dropped[part] = f"{DROPPED}: no faster, {took} in its first run"

    def _first(
        self, laboratory: Laboratory, part: str, budget: Budget, name: str = ""
    ) -> Measured | None:
        left = budget.seconds - budget.spent
        if left <= 0.0:
            self._dropped[part] = f"{DROPPED}: the budget was spent before"
            return None
        asked = Compiling(name or _folder(part), patience=left, eager_random=bool(name))
        cold = laboratory.run(self._parts[part][1], compiling=asked)
        if cold.failed:
            self._dropped[part] = f"fails, {cold.failed}"
        elif not cold.compile_us:
            self._dropped[part] = f"{DROPPED}: nothing was compiled, the step does not call it"
        else:
            return cold
        return None

    def _with_equal_draws(
        self, laboratory: Laboratory, part: str, before: Measured, budget: Budget
    ) -> tuple[Agreement, float]:
        """Compared once more with the random numbers that eager code draws: dropout has others when
        it is compiled.
        """
        drawn = self._first(laboratory, part, budget, f"{_folder(part)}-drawn")
        if drawn is None:
            return Agreement(same=False, note=self._dropped[part]), 0.0
        said = agree(before.results, drawn.results, TOLERANCE, REASON)
        apart = largest_difference(before.results, drawn.results)
        if said.same:
            said = replace(said, note=f"{said.note}; compared with random numbers as in eager code")
        return said, apart

    # -- what came out -----------------------------------------------------------------------------

    def _answer(self, grid: Grid) -> tuple[Proposal | None, str]:
        if grid.rounds and not grid.works(AS_IT_IS):
            return None, f"{TITLE}: not to be had, {grid.runs[AS_IT_IS][-1].failed}"
        curve = self._curve(grid)
        told = "; ".join(f"{name}: {came}" for name, came in curve)
        best = grid.fastest() if grid.rounds else None
        if best is None:
            tried = any(part not in self._dropped for part in self._parts)
            few = (
                f" (the budget was spent after {grid.rounds} of {LEAST_PAIRS} rounds)"
                if tried and grid.rounds < LEAST_PAIRS
                else ""
            )
            return None, f"{TITLE}: {told}; none is proven faster{few}"
        return self._proposal(grid, best, curve), (
            f"{TITLE}: {_part(best)} compiled is faster; see the proposal"
        )

    def _curve(self, grid: Grid) -> tuple[tuple[str, str], ...]:
        now = [("as it is (now)", amounts.duration(grid.step_us(AS_IT_IS)))] if grid.rounds else []
        return (*now, *((part, self._came(grid, part)) for part in self._parts))

    def _came(self, grid: Grid, part: str) -> str:
        setting = _setting(part)
        if part in self._dropped:
            return self._dropped[part]
        if setting not in grid.runs:
            return "not run again, the budget was spent before"
        if not grid.works(setting):
            return f"fails, {next(run.failed for run in grid.runs[setting] if run.failed)}"
        interval = grid.interval(setting)
        ratio = (
            f" ({interval.ratio:.2f} [{interval.low:.2f} - {interval.high:.2f}])"
            if interval is not None
            else ""
        )
        return f"{amounts.duration(grid.step_us(setting))}{ratio}, {self._compiled(grid, part)}"

    def _compiled(self, grid: Grid, part: str) -> str:
        cold = self._cold[part].compile_us
        warm = median(run.compile_us for run in grid.runs[_setting(part)])
        return (
            f"{amounts.duration(cold)} of compilation ({amounts.duration(warm)} with warm caches)"
        )

    def _proposal(self, grid: Grid, best: Setting, curve: tuple[tuple[str, str], ...]) -> Proposal:
        part = _part(best)
        edits = self._parts[part][0]
        gain = grid.step_us(AS_IT_IS) - grid.step_us(best)
        steps = max(1, round(self._cold[part].compile_us / gain))
        lines = ", ".join(f"{edit.site.file}:{edit.site.line}" for edit in edits)
        text = (
            f"Compile {part} in place ({lines}): the names of its weights stay. A step gains "
            f"{amounts.duration(gain)}, so that {self._compiled(grid, part)} has paid after "
            f"{amounts.count(steps, 'step')}. {_apart(self._differences[part])}"
        )
        verified = replace(
            grid.proven(best),
            same_result=True,
            note=f"{self._agreements[part].note}; caches were warm on both sides",
        )
        diff = patch.plan(edits, self._recording.source_bytes).diff.decode("utf-8", "replace")
        return Proposal(TITLE, text, curve, verified, diff)


_NUMBERS = {part: number for number, part in enumerate((WHOLE, BLOCKS), 1)}


def _apart(difference: float) -> str:
    return (
        f"Losses differ by {difference:.1e} of their size at most."
        if difference
        else "All losses are the same."
    )


def _setting(part: str) -> Setting:
    return (("compiled", _NUMBERS[part]),)


def _part(setting: Setting) -> str:
    return next((part for part in _NUMBERS if _setting(part) == setting), "")


def _folder(part: str) -> str:
    return f"{_NUMBERS[part]}" if part else "unpatched"
