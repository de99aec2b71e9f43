"""Where a program says over how many micro-batches it accumulates gradients, and of how many
samples: for certain, or not at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from auditor.evidence.source.argument_origin import Home, flags_of, number_of
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, name_of, span_of
from auditor.evidence.table import Evidence
from auditor.extensions.verify.accumulation_uses import Turn, Unclear, Uses
from auditor.model import Edit, Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.graph import BackwardRow
from auditor.syntax.index import SCOPES, nodes_in
from auditor.syntax.qualified_names import last_key

LOADER = "DataLoader"
ROUNDING = "gradients of the same samples are added in another order, so they round differently"


@dataclass(frozen=True)
class Written:
    """Where a number is written: in files, or as a ``word`` of the command line, behind a
    ``prefix`` (``--batch-size=``).
    """

    homes: tuple[Home, ...] = ()
    word: int | None = None
    prefix: str = ""


@dataclass(frozen=True)
class Accumulation:
    """``count`` micro-batches of ``batch`` samples are one optimizer step, and where these numbers
    are written.

    ``said`` are sentences on what else a change of the two shifts, without a bearing
    on what is trained. ``argv`` is the target's command line.
    """

    site: Site
    batch: int
    count: int
    batch_at: Written
    count_at: Written
    said: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()

    def edits(self, batch: int, count: int) -> tuple[Edit, ...]:
        """The edits of files that set both, as far as they stand in files."""
        reason = f"{ROUNDING}; {'; '.join(self.said)}" if self.said else ROUNDING
        homes = [(home, batch) for home in self.batch_at.homes] + [
            (home, count) for home in self.count_at.homes
        ]
        return tuple(home.edit(str(value), reason=reason) for home, value in homes)

    def arguments(self, batch: int, count: int) -> tuple[str, ...]:
        """The command line that sets them, as far as they stand there."""
        words = list(self.argv)
        for at, value in ((self.batch_at, batch), (self.count_at, count)):
            if at.word is not None:
                words[at.word] = f"{at.prefix}{value}"
        return tuple(words)


def find(evidence: Evidence) -> Accumulation | None:
    """How the audited target accumulates; None where no line of it shows that. Raises
    :class:`Unclear`.
    """
    source, recording = evidence.get(Source), evidence.recording
    argv = tuple(recording.manifest.get("argv") or ())
    numbers = _Numbers(source, evidence.get(Configs), argv)
    turns = [turn for file in source.texts for turn in _turns(source, file)]
    if not turns:
        return None
    if len(turns) > 1:
        raise Unclear(
            f"gradients are accumulated at {' and '.join(str(turn.site(source)) for turn in turns)}"
        )
    turn = turns[0]
    count, count_at = _count(numbers, turn)
    if count <= 1:
        return None
    seen = _backwards(evidence)
    if seen == 1:
        raise Unclear(f"each call of the target is one of {count} micro-batches, not a whole step")
    if seen != count:
        raise Unclear(
            f"{turn.site(source)} says {count} micro-batches, and a step called backward {seen} "
            "times"
        )
    fed = _fed(evidence)
    loader, written = _made(recording, source, fed)
    batch_at = _batch(numbers, recording.site(fed.made_at), written, fed.batch)
    said = Uses(source, turn, loader, last_key(written)).checked()
    said = (*said, *_ragged(fed, fed.batch * count))
    return Accumulation(turn.site(source), fed.batch, count, batch_at, count_at, said, numbers.argv)


@dataclass(frozen=True)
class _Numbers:
    """Finds the numbers that names stand for."""

    source: Source
    configs: Configs
    argv: tuple[str, ...]

    def of(self, written: ast.expr, file: str, line: int, call: str = "") -> tuple[int, Written]:
        """The number that an expression names, and where it is written. Raises :class:`Unclear`."""
        given = list(self._given(last_key(written)))
        if len(given) == 1:
            return given[0]
        found = number_of(self.source, self.configs, written, call) if not given else None
        if found is None:
            raise Unclear(
                f"where `{ast.unparse(written)}` ({file}:{line}) gets its value cannot be told"
            )
        return found[0], Written((found[1],))

    def _given(self, key: str) -> Iterator[tuple[int, Written]]:
        """What the command line says: ``--batch-size 4`` or ``--batch-size=4``."""
        flags = flags_of(self.source, key)
        for number, word in enumerate(self.argv):
            flag, equals, value = word.partition("=")
            if flag in flags:
                place = number if equals else number + 1
                text = value if equals else "".join(self.argv[place : place + 1])
                if not text.isdecimal():
                    raise Unclear(f"`{word}` on the command line is given no whole number")
                yield int(text), Written((), place, f"{flag}=" if equals else "")


# -- the count -------------------------------------------------------------------------------------


def _turns(source: Source, file: str) -> Iterator[Turn]:
    """``if (i + 1) % count == 0:`` around an optimizer's step, and ``for _ in range(count):``
    around a backward.
    """
    for node in source.nodes(file):
        if isinstance(node, ast.If) and _calls(node.body, "step"):
            remainders = [
                each for each in nodes_in(node.test, ast.BinOp) if isinstance(each.op, ast.Mod)
            ]
            around = _around(source, file, node)
            if len(remainders) == 1 and around is not None and _calls([around], "backward"):
                yield Turn(file, node, remainders[0].right, remainders[0].left, around)
        elif (
            isinstance(node, ast.For)
            and _calls(node.body, "backward")
            and not _calls(node.body, "step")
        ):
            times = (
                node.iter.args
                if isinstance(node.iter, ast.Call) and name_of(node.iter.func) == "range"
                else []
            )
            if len(times) == 1:
                yield Turn(file, node, times[0], node.target, node)


def _around(
    source: Source, file: str, node: ast.AST
) -> ast.For | ast.While | ast.FunctionDef | None:
    """The innermost loop or function that holds a node."""
    for up in source.index(file).up(node):
        if isinstance(up, (ast.For, ast.While, ast.FunctionDef)):
            return up
        if isinstance(up, SCOPES):
            return None
    return None


def _calls(statements: list[ast.stmt], method: str) -> bool:
    """True if they call the method of anything but a schedule."""
    functions = (call.func for call in nodes_in(statements, ast.Call))
    return any(
        isinstance(each, ast.Attribute)
        and each.attr == method
        and "sched" not in name_of(each.value).lower()
        for each in functions
    )


def _count(numbers: _Numbers, turn: Turn) -> tuple[int, Written]:
    """The number of micro-batches, and all places where it is written: with a name one, else each
    number.
    """
    source = numbers.source
    divisors = [divisor for divisor in turn.divisors() if turn.is_count(divisor)]
    if not divisors:
        raise Unclear(
            f"the loss is not divided by `{ast.unparse(turn.count)}` ({turn.site(source)})"
        )
    if isinstance(turn.count, ast.Constant):
        if type(turn.count.value) is not int:
            raise Unclear(f"`{ast.unparse(turn.count)}` is no whole number")
        return turn.count.value, Written(
            tuple(_literal(source, turn.file, each) for each in (turn.count, *divisors))
        )
    return numbers.of(turn.count, turn.file, turn.node.lineno)


def _literal(source: Source, file: str, node: ast.expr) -> Home:
    span = span_of(node)
    return Home(
        source.site_of(file, node),
        "set_constant",
        span=(span.line, span.end_line, span.col, span.end_col),
    )


def _backwards(evidence: Evidence) -> int:
    """Backward calls of each loud step, all at one line."""
    rows = [row for row in evidence.rows(BackwardRow) if row.pass_name == "loud"]
    steps: dict[int, int] = {}
    for row in rows:
        steps[row.step] = steps.get(row.step, 0) + row.n
    if not steps:
        raise Unclear("the audit did not watch backward calls")
    if len({row.at for row in rows}) > 1 or len(set(steps.values())) > 1:
        raise Unclear("not every step calls backward as often, from one line")
    return next(iter(steps.values()))


# -- the batch size --------------------------------------------------------------------------------


class _Fed(NamedTuple):
    """The one loader that fed the steps: the site that made it, its batch size, samples of an
    epoch.
    """

    made_at: int
    batch: int
    samples: int | None


def _fed(evidence: Evidence) -> _Fed:
    numbers = {row.loader for row in evidence.rows(BatchRow)}
    rows = [row for row in evidence.rows(LoaderRow) if row.loader in numbers]
    if len({(row.made_at, row.batch_size) for row in rows}) != 1:
        raise Unclear("the steps are not fed by one torch DataLoader")
    made_at, batch = rows[0].made_at, rows[0].batch_size
    if made_at is None or batch is None:
        raise Unclear("the batch size is not an argument of the DataLoader")
    return _Fed(made_at, batch, rows[0].samples)


def _made(recording: Recording, source: Source, fed: _Fed) -> tuple[ast.Call, ast.expr]:
    """The call that makes the loader, and what it is given as its batch size: by name, or
    second.
    """
    site = recording.site(fed.made_at)
    calls = [call for call in source.calls_at(site) if name_of(call.func) == LOADER]
    given = [item.value for call in calls for item in call.keywords if item.arg == "batch_size"]
    given = given or [
        call.args[1]
        for call in calls
        if len(call.args) > 1 and not isinstance(call.args[0], ast.Starred)
    ]
    if len(calls) != 1 or len(given) != 1:
        raise Unclear(f"the call does not give the batch size at {site}")
    return calls[0], given[0]


def _batch(numbers: _Numbers, site: Site, written: ast.expr, ran: int) -> Written:
    """Where the batch size is written that ran."""
    if isinstance(written, ast.Constant) and written.value == ran:
        return Written((_literal(numbers.source, site.file, written),))
    value, at = numbers.of(written, site.file, site.line, LOADER)
    if value != ran:
        where = at.homes[0].site if at.homes else "the command line"
        raise Unclear(f"the batch size was {ran}, and {where} says {value}: it came from elsewhere")
    return at


def _ragged(fed: _Fed, effective: int) -> Iterator[str]:
    """What is to be said of an epoch's end, but where it is known to be as it was."""
    samples = fed.samples
    if samples is None or samples % effective:
        yield (
            f"an epoch is not known to be a whole number of effective batches ({effective} "
            "samples), so it may end with another one"
        )
