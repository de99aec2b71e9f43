"""Where a program says over how many micro-batches it accumulates gradients, and of how many samples: for certain, or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.configs import Configs
from auditor.evidence.homes import Home, last_key, number_of
from auditor.evidence.source import Source, name_of, span_of
from auditor.model import Edit, Site
from auditor.recording import Recording, Row
from auditor.verify.accumulation_uses import Code, Turn, Unclear, said_of

LOADER = "DataLoader"
ROUNDING = "gradients of the same samples are added in another order, so they round differently"


@dataclass(frozen=True)
class Accumulation:
    """``count`` micro-batches of ``batch`` samples are one optimizer step, and where these numbers are written.

    ``calls`` is how many calls of the target that takes: 1, or ``count`` where each call is a micro-batch. ``said`` are sentences
    on what else a change of the two shifts, without a bearing on what is trained.
    """

    site: Site
    batch: int
    count: int
    batch_home: Home
    count_homes: tuple[Home, ...]
    calls: int = 1
    said: tuple[str, ...] = ()

    def edits(self, batch: int, count: int) -> tuple[Edit, ...]:
        """The edits that set both."""
        reason = f"{ROUNDING}; {'; '.join(self.said)}" if self.said else ROUNDING
        homes = ((self.batch_home, batch), *((home, count) for home in self.count_homes))
        return tuple(home.edit(str(value), reason=reason) for home, value in homes)


def find(recording: Recording) -> Accumulation | None:
    """How the audited target accumulates; None where no line of it shows that. Raises :class:`Unclear`."""
    source, configs = Source.build(recording), Configs.build(recording)
    code = Code(source)
    turns = [turn for file in source.texts for turn in _turns(code, file)]
    if not turns:
        return None
    if len(turns) > 1:
        raise Unclear(f"gradients are accumulated at {' and '.join(str(turn.site(source)) for turn in turns)}")
    turn = turns[0]
    count, homes = _count(source, configs, turn)
    if count <= 1:
        return None
    seen = _backwards(recording)
    if seen not in (1, count):
        raise Unclear(f"{turn.site(source)} says {count} micro-batches, and a step called backward {seen} times")
    fed = _fed(recording)
    loader, written = _made(recording, source, fed)
    batch, home = _batch(source, configs, recording.site(fed["made_at"]), written, fed["batch_size"])
    said = said_of(code, turn, loader, last_key(written))
    calls = 1 if seen == count else count
    if calls > 1:
        said = (*said, "each call of the target then is a larger micro-batch, so whoever calls it must do so less often")
    return Accumulation(turn.site(source), batch, count, home, homes, calls, (*said, *_ragged(fed, batch * count)))


# -- the count ---------------------------------------------------------------------------------------------------------


def _turns(code: Code, file: str) -> Iterator[Turn]:
    """``if (i + 1) % count == 0:`` around an optimizer's step, and ``for _ in range(count):`` around a backward."""
    for node in code.source.nodes(file):
        if isinstance(node, ast.If) and _calls(node.body, "step"):
            remainders = [each for each in ast.walk(node.test) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mod)]
            around = code.around(file, node)
            if len(remainders) == 1 and around is not None and _calls([around], "backward"):
                yield Turn(file, node, remainders[0].right, remainders[0].left, around)
        elif isinstance(node, ast.For) and _calls(node.body, "backward") and not _calls(node.body, "step"):
            times = node.iter.args if isinstance(node.iter, ast.Call) and name_of(node.iter.func) == "range" else []
            if len(times) == 1:
                yield Turn(file, node, times[0], node.target, node)


def _calls(statements: list[ast.stmt], method: str) -> bool:
    """True if they call the method of anything but a schedule."""
    inside = (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call))
    named = (node.func for node in inside if isinstance(node.func, ast.Attribute) and node.func.attr == method)
    return any("sched" not in name_of(function.value).lower() for function in named)


def _count(source: Source, configs: Configs, turn: Turn) -> tuple[int, tuple[Home, ...]]:
    """The number of micro-batches, and all places where it is written: with a name one, else each number."""
    divisors = [divisor for divisor in turn.divisors() if turn.is_count(divisor)]
    if not divisors:
        raise Unclear(f"the loss is not divided by `{ast.unparse(turn.count)}` ({turn.site(source)})")
    if isinstance(turn.count, ast.Constant):
        if type(turn.count.value) is not int:
            raise Unclear(f"`{ast.unparse(turn.count)}` is no whole number")
        return turn.count.value, tuple(_literal(source, turn.file, each) for each in (turn.count, *divisors))
    found = number_of(source, configs, turn.count)
    if found is None:
        raise Unclear(f"where `{ast.unparse(turn.count)}` ({turn.site(source)}) gets its value cannot be told")
    return found[0], (found[1],)


def _literal(source: Source, file: str, node: ast.expr) -> Home:
    span = span_of(node)
    return Home(source.site_of(file, node), "set_constant", span=(span.line, span.end_line, span.col, span.end_col))


def _backwards(recording: Recording) -> int:
    """Backward calls of each loud step, all at one line."""
    rows = [row for row in recording.rows("backward") if row["pass"] == "loud"] if recording.has("backward") else []
    steps: dict[int, int] = {}
    for row in rows:
        steps[row["step"]] = steps.get(row["step"], 0) + row["n"]
    if not steps:
        raise Unclear("the audit did not watch backward calls")
    if len({row["at"] for row in rows}) > 1 or len(set(steps.values())) > 1:
        raise Unclear("not every step calls backward as often, from one line")
    return next(iter(steps.values()))


# -- the batch size ----------------------------------------------------------------------------------------------------


def _fed(recording: Recording) -> Row:
    """The one loader that fed the steps, as it was recorded."""
    numbers = {row["loader"] for row in recording.rows("batches")} if recording.has("batches") else set()
    rows = [row for row in recording.rows("loaders") if row["loader"] in numbers] if numbers else []
    if len({(row["made_at"], row.get("batch_size")) for row in rows}) != 1:
        raise Unclear("the steps are not fed by one torch DataLoader")
    if rows[0]["made_at"] is None or not isinstance(rows[0].get("batch_size"), int):
        raise Unclear("the batch size is not an argument of the DataLoader")
    return rows[0]


def _made(recording: Recording, source: Source, fed: Row) -> tuple[ast.Call, ast.expr]:
    """The call that makes the loader, and what it is given as its batch size: by name, or second."""
    site = recording.site(fed["made_at"])
    calls = [call for call in source.calls_at(site) if name_of(call.func) == LOADER]
    given = [item.value for call in calls for item in call.keywords if item.arg == "batch_size"]
    given = given or [call.args[1] for call in calls if len(call.args) > 1 and not isinstance(call.args[0], ast.Starred)]
    if len(calls) != 1 or len(given) != 1:
        raise Unclear(f"the batch size does not stand in the call at {site}")
    return calls[0], given[0]


def _batch(source: Source, configs: Configs, site: Site, written: ast.expr, ran: int) -> tuple[int, Home]:
    """The batch size, which must be what ran, and where it is written."""
    if isinstance(written, ast.Constant) and written.value == ran:
        return ran, _literal(source, site.file, written)
    found = number_of(source, configs, written, LOADER)
    if found is None:
        raise Unclear(f"where `{ast.unparse(written)}` ({site}) gets its value cannot be told")
    if found[0] != ran:
        raise Unclear(f"the batch size was {ran}, and {found[1].site} says {found[0]}: it came from elsewhere")
    return found


def _ragged(fed: Row, effective: int) -> Iterator[str]:
    """What is to be said of an epoch's end, but where it is known to be as it was."""
    samples = fed.get("samples")
    if samples is None or samples % effective:
        yield f"an epoch is not known to be a whole number of effective batches ({effective} samples), so it may end with another one"
