"""CFG003 and 9 to 12: layouts and modes of modules, and layers that do not follow their model's mode."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from auditor import amounts
from auditor.evidence.source.files import Function, Source, lines_of, name_of, the_only, unparsed
from auditor.evidence.source.loops import evaluates, evaluating, is_decorated_off, turns_off
from auditor.evidence.table import Rows
from auditor.evidence.trace.patterns import Structure
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import CensusRow
from auditor.rule import Rule, knob
from auditor.syntax.index import LOOPS, is_ordered, names_in, nodes_in, targets_of

from ..census import CensusSays
from ..lines import places_of
from .rows import SwitchedRow, TrainModeForwardRow, behave


class DropoutInEvaluation(CensusSays):
    """Dropout is active in an evaluation in eval mode."""

    code = "CFG011"
    SAID: ClassVar = {
        "dropout": "{row.name} {of}drops values although the model is in eval mode: the score is "
        "noisy and differs from run to run",
    }
    advice = (
        "Pass training=self.training to a function (dropout_p=p if self.training else 0.0 to "
        "attention); create an nn.Dropout in __init__ as an attribute, or in an nn.ModuleList."
    )

    def said(self, row: CensusRow, **words: object) -> str:
        of = "of a module that the model does not hold " if row.name[0].isupper() else ""
        return super().said(row, of=of, **words)

    def detect(self, census: Rows[CensusRow], source: Source) -> Iterator[Finding]:
        """A note where the line asks for it, or a library does it."""
        for finding in super().detect(census, source):
            site = finding.site
            calls = list(source.calls_at(site)) if site is not None else []
            named = site is not None and bool(words(function_of(source, site)) & ON_PURPOSE)
            meant = finding.severity is Severity.NOTE or named or any(map(_asked, calls))
            edit = None if site is None or meant else _passed_on(source, site, calls)
            yield replace(
                finding,
                severity=Severity.NOTE if meant else None,
                remedy=Remedy(self.advice, () if edit is None else (edit,)),
            )


def _asked(call: ast.Call) -> bool:
    """The call is given ``training``: the program decides."""
    given = len(call.args) > 2 or any(each.arg == "training" for each in call.keywords)
    return "dropout" in name_of(call.func) and given


def _passed_on(source: Source, site: Site, calls: list[ast.Call]) -> Edit | None:
    """``training=self.training`` for the one call of ``dropout`` in a ``forward`` of the line."""
    function = source.index(site.file).scope_at(site.line)
    drops = [call for call in calls if name_of(call.func) == "dropout"]
    if not isinstance(function, Function) or function.name != "forward" or len(drops) != 1:
        return None
    own = [each.arg for each in function.args.args][:1] == ["self"]
    free = len(drops[0].args) < 3 and not any(each.arg is None for each in drops[0].keywords)
    reason = "the evaluation changes: nothing is dropped in eval mode"
    keyword = "training", "self.training"
    return Edit(site, "set_keyword", "dropout", *keyword, reason=reason) if own and free else None


class FrozenNormMoves(CensusSays):
    """A frozen layer runs in train mode: statistics of a batch norm change, or dropout is active."""

    code = "CFG012"
    SAID: ClassVar = {
        "norm": "{row.n} frozen {row.name}{where} in train mode: the weights stay, but inputs are "
        "normalized with the batch's statistics, and the running statistics change",
        "woken": "train() also puts the frozen {row.name} back into train mode, which was in eval "
        "mode: without gradients, {row.n} of its dropout layers drop values",
    }
    advice = (
        "Call eval() on the frozen layers after each model.train(), for example by overriding "
        "train(); requires_grad_(False) freezes parameters alone."
    )

    def said(self, row: CensusRow, **words: object) -> str:
        where = "" if row.other_at is None else f" at {row.site_of(row.other_at)}"
        return super().said(row, where=where, **words)


class AverageWithoutBuffers(CensusSays):
    """An average of weights leaves out the statistics of batch norms."""

    code = "CFG013"
    SAID: ClassVar = {
        "average": "an average of a trained network is evaluated, and {row.n} of its {row.name} "
        "layers still have the running statistics of the start: the update copies parameters, not "
        "buffers",
    }
    advice = (
        "Copy the buffers with each update: for a, b in zip(average.buffers(), model.buffers()): "
        "a.copy_(b). AveragedModel(use_buffers=True) averages them, update_bn() computes them "
        "again."
    )

    def place(self, row: CensusRow, source: Source) -> Site | None:
        """The loop over both networks' parameters, if there is one."""
        loops = (
            source.site_of(file, node)
            for file, node in source.every(ast.For)
            if unparsed(node.iter).count("arameters()") > 1
        )
        return the_only(loops) or row.site


# -- scoring ---------------------------------------------------------------------------------------
# Is what a line computes compared with what it should have been, for a loss or a metric alone?

SCORES = frozenset(
    """
    loss losses criterion crit cost xent recall precision entropy nll mse mae bce ce l1 accuracy acc
    metric metrics dice iou miou psnr ssim perplexity ppl auc f1
    """.split()
)
"""Words in the names of calls that compare a result with its target."""

LOSSES = frozenset(["loss", "losses", "nll", "xent"])
"""Words in names of what a module returns that compared its result itself."""

WANTED = frozenset(["label", "labels", "target", "targets"])
"""Words in the names of arguments that say what should come out."""

EVALUATES = frozenset(
    ["eval", "evaluate", "evaluation", "val", "valid", "validate", "validation", "test", "dev"]
)
"""Words in names by which a program says that it evaluates."""

ON_PURPOSE = frozenset(["bn", "mc", "uncertainty", "recalibrate", "calibrate", "ensemble"])
"""Words in the names of functions that want train mode."""

DISTANCES = frozenset(["abs", "square", "pow", "norm"])
"""Calls that make a distance of a difference."""

CHANGES = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For)
"""Statements that give a name something else."""


@dataclass(frozen=True)
class Evaluation:
    """The line that evaluates; ``named``: a name around it says so."""

    site: Site
    named: bool


def evaluation(source: Source, at: Site, within: Site) -> Evaluation | None:
    """What is known of a call at ``at``, made with gradients off since ``within``, the line in the
    function that turned them off, which is pointed at where others call that of ``at``, too. None
    if nothing is compared, or the comparison serves more than a report.
    """
    name = function_of(source, at)
    same = at.file == within.file and name == function_of(source, within)
    own = same or calls_of(source, name) == 1
    site = at if own else within
    named = _scored(source, site, whole=own and not same)
    return None if named is None else Evaluation(site, named)


def _scored(source: Source, site: Site, *, whole: bool) -> bool | None:
    """Whether a name says that the line evaluates; ``whole``: without gradients. None if not."""
    function = source.index(site.file).scope_at(site.line)
    block = None if function is None else _block(function, site.line, whole=whole)
    if function is None or block is None or _wanted(function, block, site.line):
        return None
    statement = _statement(block, site.line)
    if statement is None or _repeated(block, statement) or _of_training(function, block, site.line):
        return None
    named = _is_named(function, block, statement)
    compared = _compares_itself(statement, site.line) or any(
        _is_score(node, by_hand=named) for node in nodes_in(block, ast.AST)
    )
    return named if compared and not _picked(function, block) else None


def _block(function: ast.AST, line: int, *, whole: bool) -> ast.AST | None:
    """Where gradients are off around the line."""
    if whole or (isinstance(function, Function) and is_decorated_off(function)):
        return function
    withs = nodes_in(function, ast.With)
    blocks = (node for node in withs if turns_off(node) and line in lines_of(node))
    return min(blocks, key=lambda node: node.lineno, default=None)


def _wanted(function: ast.AST, block: ast.AST, line: int) -> bool:
    """Train mode is asked for in the block, or the function's name says why."""
    if isinstance(function, Function) and words(function.name) & ON_PURPOSE:
        return True
    return any(call.lineno <= line for call in nodes_in(block, ast.Call) if _asks_to_train(call))


def _asks_to_train(call: ast.Call) -> bool:
    """``model.train()``, not ``model.train(False)``."""
    off = any(isinstance(each, ast.Constant) and each.value is False for each in call.args)
    return isinstance(call.func, ast.Attribute) and call.func.attr == "train" and not off


def _statement(block: ast.AST, line: int) -> ast.stmt | None:
    statements = (node for node in nodes_in(block, ast.stmt) if node is not block)
    found = (node for node in statements if line in lines_of(node))
    return max(found, key=lambda node: node.lineno, default=None)


def _repeated(block: ast.AST, statement: ast.stmt) -> bool:
    """The same input goes in several times: a loop over ``range`` that changes nothing of it."""
    loops: list[ast.For | ast.comprehension] = [
        *_loops_around(block, statement),
        *nodes_in(statement, ast.comprehension),
    ]
    for loop in loops:
        counted = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "range"
        body = loop.body if isinstance(loop, ast.For) else ()
        others = (node for node in nodes_in(body, ast.stmt) if isinstance(node, CHANGES))
        changed = names_in((each for each in others if each is not statement), ast.Store)
        changed |= names_in(loop.target, ast.Store)
        if counted and not names_in(statement, ast.Load) & changed:
            return True
    return False


def _loops_around(block: ast.AST, statement: ast.stmt) -> Iterator[ast.For]:
    for loop in nodes_in(block, ast.For):
        if loop is not statement and any(node is statement for node in nodes_in(loop, ast.stmt)):
            yield loop


def _of_training(function: ast.AST, block: ast.AST, line: int) -> bool:
    """The same call, of what the block did not make, is outside too: the batch trained on."""
    inside, made = set(nodes_in(block, ast.Call)), names_in(block, ast.Store)
    others = {unparsed(call) for call in nodes_in(function, ast.Call) if call not in inside}
    return any(
        line in lines_of(call)
        and unparsed(call) in others
        and bool(call.args or call.keywords)
        and not names_in(call, ast.Load) & made
        for call in nodes_in(block, ast.Call)
    )


def _is_named(function: ast.AST, block: ast.AST, statement: ast.stmt) -> bool:
    names = names_in(statement, ast.Store) | names_in(statement, ast.Load)
    if isinstance(function, Function):
        names.add(function.name)
    loops = [*_loops_around(block, statement)]
    if isinstance(statement, ast.For):
        loops.append(statement)
    names |= names_in((loop.iter for loop in loops), ast.Load)
    return any(words(name) & EVALUATES for name in names)


def _is_score(node: ast.AST, *, by_hand: bool) -> bool:
    """A loss, a metric or ``==`` of two names. ``by_hand``: also ``(result - target).abs()``."""
    if isinstance(node, ast.Call):
        parts = [*node.args, *(each.value for each in node.keywords)]
        if name_of(node.func) == "eq" and isinstance(node.func, ast.Attribute):
            parts.append(node.func.value)
        elif not words(_called(node)) & SCORES:
            return by_hand and name_of(node.func) in DISTANCES and _differs(node)
        starred = any(isinstance(each, ast.Starred) for each in parts)
        return starred or sum(bool(names_in(each, ast.Load)) for each in parts) > 1
    if isinstance(node, ast.Compare) and all(isinstance(each, ast.Eq) for each in node.ops):
        return all(names_in(each, ast.Load) for each in (node.left, *node.comparators))
    if isinstance(node, ast.Attribute) and node.attr == "loss":
        return True
    squared = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    return by_hand and squared and _differs(node)


def _differs(node: ast.AST) -> bool:
    subtracted = (each for each in nodes_in(node, ast.BinOp) if isinstance(each.op, ast.Sub))
    return any(
        names_in(each.left, ast.Load) and names_in(each.right, ast.Load) for each in subtracted
    )


def _compares_itself(statement: ast.stmt, line: int) -> bool:
    """The call is given what should come out, too, or gives a loss: the module compares them."""
    named = isinstance(statement, ast.Assign) and any(
        words(name) & LOSSES for name in names_in(statement.targets, ast.Store)
    )
    for call in nodes_in(statement, ast.Call):
        wanted = any(words(each.arg or "") & WANTED for each in call.keywords)
        several = len(call.args) + len(call.keywords) > 1
        direct = isinstance(statement, ast.Assign) and statement.value is call
        if line in lines_of(call) and several and (wanted or (named and direct)):
            return True
    return False


def _picked(function: ast.AST, block: ast.AST) -> bool:
    """What only the block makes is used behind it for more than numbers: it is compared there."""
    inside = set(nodes_in(block, ast.AST))
    outside = [node for node in nodes_in(function, ast.AST) if node not in inside]
    names = (node for node in outside if isinstance(node, ast.Name))
    given = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made = names_in(block, ast.Store) - given
    return any(
        bool(names_in(node, ast.Load) & made) and _is_score(node, by_hand=False)
        if isinstance(node, ast.Call)
        else isinstance(node, ast.Subscript) and bool(names_in(node.slice, ast.Load) & made)
        for node in outside
    )


def words(name: str) -> set[str]:
    """``val`` and ``loader`` of ``val_loader`` and of ``valLoader``."""
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*", name)}


def _called(call: ast.Call) -> str:
    """The last name, and that of what it is an attribute of (``metric.update``)."""
    name = name_of(call.func)
    if isinstance(call.func, ast.Attribute) and name in ("update", "forward", "add_batch"):
        return f"{name_of(call.func.value)} {name}"
    return name


def calls_of(source: Source, name: str) -> int:
    """How many lines of the program call a function of this name."""
    return len({(file, call.lineno) for file, call in source.calls_of(name)})


def function_of(source: Source, site: Site) -> str:
    """Name of the function around a line; empty outside of functions."""
    scope = source.index(site.file).scope_at(site.line)
    return scope.name if isinstance(scope, Function) else ""


# -- modes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayoutTransposedAroundConvolutions(Rule):
    """Convolutions transpose tensors to channels-last and back."""

    code = "CFG003"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Convert once: model.to(memory_format=torch.channels_last), and each input batch too."

    share: float = knob(0.05, "Report only kernels of at least this share of kernel time.")

    def detect(self, structure: Structure) -> Iterator[Finding]:
        us = structure.transpose_us
        if not us or us < self.share * structure.kernel_us:
            return
        yield Finding(
            None,
            "changing memory layouts around convolutions takes "
            f"{amounts.percent(us / structure.kernel_us)} of the kernel time: "
            "model and input are not in channels-last format",
            steps=structure.steps if structure.marked else 0,
            lost_us_per_step=us / structure.steps if structure.marked else None,
            basis="estimated" if structure.marked else "none",
            seen_on="trace",
            severity=None if structure.marked else Severity.NOTE,
            facts=tuple(
                (name[:90], f"{amounts.percent(time / structure.kernel_us)} of kernel time")
                for name, time in structure.transposes[:4]
            ),
        )


@dataclass(frozen=True)
class TrainedInEvalMode(Rule):
    """A model stays in eval mode after an evaluation and trains on."""

    code = "CFG009"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Call train() on it after the evaluation, before training goes on."

    fewest: int = knob(3, "Report only after this many steps in eval mode.")

    def detect(self, switched: Rows[SwitchedRow], source: Source) -> Iterator[Finding]:
        for each in switched:
            early = _left_early(source, each.site)
            left = None if early is None else source.site_of(each.site.file, early)
            if each.steps >= self.fewest and (not each.grads or evaluates(source, each.site)):
                yield Finding(
                    each.site,
                    f"{each.module} was put into eval mode here after {each.before} steps in train "
                    f"mode, and then trained for {each.steps} steps in eval mode, in which "
                    f"{behave(each.parts)} differently",
                    steps=each.steps,
                    per_step=1.0,
                    places=places_of(each.site, left),
                )
            elif early is not None and each.backs:
                backs = [each.site_of(back) for back in each.backs]
                severity = _is_taken(source, early, each.site, backs)
                if severity is not None:
                    yield Finding(
                        left,
                        f"this return comes before train(). The run did not take it; once it is taken, "
                        f"{each.module} trains on in eval mode, in which {behave(each.parts)} differently",
                        severity=severity,
                        places=places_of(each.site, left, *backs),
                        remedy=Remedy("Call train() before this return, or in a finally block."),
                    )


def _left_early(source: Source, at: Site) -> ast.Return | None:
    """A return between the ``eval()`` and the ``train()`` of a function that only evaluates."""
    if evaluating(source, at) is None:
        return None
    index = source.index(at.file)
    function = index.around(at.line)[-1]
    calls = nodes_in(function, ast.Call)
    back = min((call.lineno for call in calls if _asks_to_train(call)), default=0)
    for node in nodes_in(function, ast.Return):
        own = index.scope_of(node) is function and at.line < node.lineno < back
        blocks = (up for up in index.up(node) if isinstance(up, ast.Try | ast.With))
        if own and all(map(turns_off, blocks)):
            return node
    return None


def _is_taken(
    source: Source, early: ast.Return, at: Site, backs: Iterable[Site]
) -> Severity | None:
    """How sure it is that the program takes a return and trains on, which it was not seen to do. None
    if others call ``train()``, no numbers decide on it, or its value may tell the caller to stop.
    """
    index = source.index(at.file)
    function, branch = index.around(early.lineno)[-1], index.nearest(early, ast.If)
    inside = all(each.file == at.file and each.line in lines_of(function) for each in backs)
    if branch is None or not inside or (function.decorator_list and not is_decorated_off(function)):
        return None
    for file, call in source.calls_of("train"):
        known = source.index(file)
        once = known.scope_of(call) is known.tree and known.nearest(call, *LOOPS) is None
        if _asks_to_train(call) and not once and not evaluating(source, source.site_of(file, call)):
            return None
    holders = [source.index(file).parents[call] for file, call in source.calls_of(function.name)]
    tests = (each for each in nodes_in(branch.test, ast.Compare) if is_ordered(each))
    asked = {unparsed(part) for each in tests for part in (each.left, *each.comparators)}
    if not asked or not holders or not all(isinstance(each, ast.Expr) for each in holders):
        return None
    behind = (node for node in nodes_in(function, ast.stmt) if node.lineno > early.lineno)
    stored = (to for node in behind for to in targets_of(node))  # the best one so far
    best = {unparsed(each) for to in stored for each in getattr(to, "elts", (to,))}
    return Severity.WARNING if asked & best else Severity.NOTE


@dataclass(frozen=True)
class EvaluatedInTrainMode(Rule):
    """An evaluation runs in train mode."""

    code = "CFG010"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Call eval() on it before the evaluation, and train() afterwards."

    share: float = knob(
        0.5, "Without a name such as `evaluate`, report if at most this share of the steps runs it."
    )

    def detect(self, forwards: Rows[TrainModeForwardRow], source: Source) -> Iterator[Finding]:
        for each in forwards:
            found = evaluation(source, each.site, each.site_of(each.within))
            if found is None or (not found.named and each.times > self.share * each.steps):
                continue
            yield Finding(
                found.site,
                f"{each.module} is evaluated here in train mode: {behave(each.parts)} as in training",
                steps=each.times,
            )
