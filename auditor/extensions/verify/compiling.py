"""Whether ``torch.compile`` would pay (COMP010): a program that does not compile is run with its
model compiled, and that is proposed where it is proven.
"""

from __future__ import annotations

import ast
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from statistics import median

from auditor import amounts, patch
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Evidence
from auditor.extensions.verify.intervals import LEAST_PAIRS, quiet_run
from auditor.extensions.verify.results import TOLERANCE, Agreement, agree, largest_difference
from auditor.extensions.verify.search import AS_IT_IS, DROPPED, Found, Grid, Setting
from auditor.extensions.verify.trials import Budget, Compiling, Laboratory, Measured
from auditor.model import Edit, Site
from auditor.model.verification import Proposal
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording
from auditor.syntax.index import is_path, nodes_in, owner_of

MODEL: Setting = "the model"
"""What is compiled."""

REASON = "compiled code rounds in another order, and draws other random numbers"
_OPTIMIZERS = frozenset(
    "Adam AdamW SGD Adagrad Adadelta Adamax ASGD NAdam RAdam RMSprop Rprop Adafactor".split()
)
_PARAMETERS = ("parameters", "named_parameters")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
_Function = ast.FunctionDef | ast.AsyncFunctionDef

# -- where -----------------------------------------------------------------------------------------


def places(source: Source) -> Iterator[Edit]:
    """The edits that compile in place (``Module.compile()``, which keeps the names of weights) what
    an optimizer trains: one line before the optimizer is made.
    """
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


# -- whether ---------------------------------------------------------------------------------------


CODE = "COMP010"
TITLE = f"{CODE}: torch.compile"

LEAST_STEP_US = 2000.0
"""Of shorter steps there is little to gain by what takes half a minute to compile: a third of such
a step pays for that after 45,000 of them."""

NO_FASTER = 1.05
"""What is so much slower in its first run, with everything compiled, is not run again."""

FEWEST_RUNS = 2 + 2 * LEAST_PAIRS
"""The first compilation, the run before it, and the pairs of an interval: what is not likely to get
so far is not begun."""

COMPILERS = ("g++", "clang++", "c++", "cl")
"""C++ compilers, one of which the default backend needs. ``CXX`` names another."""


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
    edits = tuple(places(evidence.get(Source)))
    planned = patch.plan(edits, recording.original_bytes)
    return Search(recording, edits, planned.files) if edits and not planned.refused else None


class _Dropped(Exception):
    """Why the compiled program is not compared any further."""


@dataclass(frozen=True)
class _First:
    """The first compilation: how long it took (us), and how the result agrees."""

    compile_us: float
    agreement: Agreement
    difference: float


class Search:
    """The search for one recorded program, which the ``edits`` turn into ``files`` that compile."""

    def __init__(
        self, recording: Recording, edits: tuple[Edit, ...], files: tuple[PatchedFile, ...]
    ) -> None:
        self._recording = recording
        self._edits = edits
        self._files = files

    @property
    def values(self) -> int:
        """How many settings a round has, and one more for what is compiled first."""
        return 3

    def run(self, laboratory: Laboratory, budget: Budget, say: Callable[[str], None]) -> Found:
        """The compiled model with what it buys, where that is proven; and what came out in a
        sentence.
        """

        def measured(setting: Setting) -> Measured:
            say(f"{TITLE}: {setting or 'as it is'}")
            files, name = (self._files, "compiled") if setting else ((), "unpatched")
            return laboratory.run(files, compiling=Compiling(name))

        if not budget.fits(FEWEST_RUNS):
            return None, f"{TITLE}: not tried, the budget left no time for it"
        say(self._announced(budget))
        before = budget.measured(lambda: laboratory.run(compiling=Compiling("unpatched")))
        if before.failed or not before.step_us:
            return None, f"{TITLE}: not to be had, {before.failed or 'no step was timed'}"
        say(f"{TITLE}: {MODEL}, the first compilation")
        try:
            first = self._compiled(laboratory, before, budget)
        except _Dropped as reason:
            return None, f"{TITLE}: {MODEL}: {reason}; none is proven faster"
        grid = Grid([MODEL], measured)
        grid.measure(budget)
        return self._answer(grid, first)

    def _announced(self, budget: Budget) -> str:
        length = budget.length()
        takes = f" of about {length:.0f} s" if length is not None else ""
        left = max(0.0, budget.seconds - budget.spent)
        return (
            f"{TITLE}: {FEWEST_RUNS} runs{takes} at least, one of them with the first compilation "
            f"(often half a minute), in the {left:.0f} s that are left"
        )

    # -- the first compilation ---------------------------------------------------------------------

    def _compiled(self, laboratory: Laboratory, before: Measured, budget: Budget) -> _First:
        """Fill the caches, see how long that takes, and whether the result is the same. Raises
        :class:`_Dropped`.
        """
        cold = self._first(laboratory, budget, Compiling("compiled"))
        said, with_its_result = agree(before.results, cold.results, TOLERANCE, REASON), cold
        if not said.same:
            # dropout draws other numbers when it is compiled: once more with those of eager code
            with_its_result = self._first(
                laboratory, budget, Compiling("compiled-drawn", eager_random=True)
            )
            said = agree(before.results, with_its_result.results, TOLERANCE, REASON)
            if not said.same:
                raise _Dropped(f"{DROPPED}: another result, {said.note}")
            said = replace(said, note=f"{said.note}; compared with random numbers as in eager code")
        if (cold.step_us or 0.0) > NO_FASTER * (before.step_us or 0.0):
            took = amounts.duration(cold.step_us or 0.0)
            raise _Dropped(f"{DROPPED}: no faster, {took} in its first run")
        apart = largest_difference(before.results.losses, with_its_result.results.losses)
        return _First(cold.compile_us, said, apart)

    def _first(self, laboratory: Laboratory, budget: Budget, asked: Compiling) -> Measured:
        left = budget.seconds - budget.spent
        if left <= 0.0:
            raise _Dropped(f"{DROPPED}: the budget was spent before")
        cold = laboratory.run(self._files, compiling=replace(asked, patience=left))
        if cold.failed:
            raise _Dropped(f"fails, {cold.failed}")
        if not cold.compile_us:
            raise _Dropped(f"{DROPPED}: nothing was compiled, the step does not call it")
        return cold

    # -- what came out -----------------------------------------------------------------------------

    def _answer(self, grid: Grid, first: _First) -> Found:
        if grid.rounds and not grid.works(AS_IT_IS):
            return None, f"{TITLE}: not to be had, {grid.runs[AS_IT_IS][-1].failed}"
        took, came = amounts.duration(first.compile_us), grid.came(MODEL)
        if grid.works(MODEL):
            warm = amounts.duration(median(run.compile_us for run in grid.runs[MODEL]))
            took += f" of compilation ({warm} with warm caches)"
            came += f", {took}"
        curve = [("as it is (now)", grid.came(AS_IT_IS))] if grid.rounds else []
        curve.append((MODEL, came))
        if grid.fastest() is None:
            told = "; ".join(f"{name}: {how}" for name, how in curve)
            return None, f"{TITLE}: {told}; none is proven faster{grid.shortfall}"
        gain = grid.step_us(AS_IT_IS) - grid.step_us(MODEL)
        steps = amounts.count(max(1, round(first.compile_us / gain)), "step")
        lines = ", ".join(f"{edit.site.file}:{edit.site.line}" for edit in self._edits)
        apart = (
            f"Losses differ by {first.difference:.1e} of their size at most."
            if first.difference
            else "All losses are the same."
        )
        text = (
            f"Compile {MODEL} in place ({lines}): the names of its weights stay. A step gains "
            f"{amounts.duration(gain)}, so that {took} has paid after {steps}. {apart}"
        )
        note = f"{first.agreement.note}; caches were warm on both sides"
        verified = replace(grid.proven(MODEL), same_result=True, note=note)
        diff = patch.plan(self._edits, self._recording.source_bytes).diff.decode("utf-8", "replace")
        proposal = Proposal(TITLE, text, tuple(curve), verified, diff)
        return proposal, f"{TITLE}: {MODEL} compiled is faster; see the proposal"
