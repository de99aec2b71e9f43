"""What sets the batch size of a program: its loaders, an argument, or a number in its source."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from auditor.errors import AuditProblem
from auditor.extensions.plan.measured import Loader, Measured

LEAST_GROWTH = 0.5
"""Share of the growth asked for that the bytes of a loader's batches must show: datasets may hold
fewer samples than a batch, or give them uneven sizes.
"""


@dataclass(frozen=True)
class BatchSetting:
    """What sets the batch size, ``size`` now. Loaders, or the argument at ``place`` in the
    program's own, or the number at ``place`` (characters from, to) of ``file``.
    """

    size: int
    said: str
    """What it is, for people: ``batch_size of the DataLoader at train.py:30``."""
    loaders: tuple[Loader, ...] = ()
    file: str = ""
    place: tuple[int, int] = (0, 0)
    argument: int = -1

    def args(self, args: tuple[str, ...], batch: int) -> tuple[str, ...]:
        """The program's arguments for another size."""
        if self.argument < 0:
            return args
        word = args[self.argument]
        name, equals, _ = word.rpartition("=")
        return (*args[: self.argument], f"{name}{equals}{batch}", *args[self.argument + 1 :])

    def files(self, batch: int) -> dict[str, bytes]:
        """Files to put in the place of the program's own."""
        if not self.file or batch == self.size:
            return {}
        text = Path(self.file).read_bytes()
        first, last = self.place
        return {self.file: text[:first] + str(batch).encode() + text[last:]}

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """Where the loaders are made."""
        return tuple((each.file, each.line) for each in self.loaders)

    def obeyed(self, base: Measured, other: Measured, batch: int) -> str:
        """Why the re-run ``other`` did not have the batch that it was to have; empty if it had."""
        if self.loaders:
            return _of_loaders(self.size, base, other, batch)
        pairs = zip(base.shapes, other.shapes, strict=False)
        for old, new in pairs:
            if old and len(old) == len(new) and old[0] * batch == new[0] * self.size > 0:
                return ""
        return f"{self.said} was changed to {batch}, and no input of the model became larger"


def _of_loaders(size: int, base: Measured, other: Measured, batch: int) -> str:
    if "batch" not in other.changed:
        return "no DataLoader took another batch size"
    before, after = (
        max((each.batch_bytes for each in run.loaders), default=0.0) for run in (base, other)
    )
    wanted = batch / size - 1
    if before and (after / before - 1) / wanted < LEAST_GROWTH:
        samples = min((each.samples for each in base.loaders if each.samples), default=None)
        few = f" (it has {samples:,})" if samples is not None and samples < batch else ""
        return f"the loader gives no batches of {batch}{few}"
    return ""


# -- finding it ------------------------------------------------------------------------------------


def found(
    base: Measured, args: Sequence[str], files: Sequence[str], named: str = ""
) -> BatchSetting | str:
    """What sets the batch size of the program, or why that is unknown. ``files`` are the program's
    own, relative to the working directory, the target's first. ``named`` is what ``--batch`` says:
    ``NAME`` or ``FILE:NAME``. Raises :class:`AuditProblem` if there is no such name.
    """
    if named:
        return _setting_of_name(named, args, files)
    if base.loaders:
        return _loaders(base)
    return (
        "no DataLoader made the batches: --batch NAME names the argument, or --batch FILE:NAME the "
        "variable, that sets their size"
    )


def _loaders(base: Measured) -> BatchSetting | str:
    sizes = [each.size for each in base.loaders if each.size is not None]
    first = base.loaders[0]
    where = f"{first.file}:{first.line}"
    dims = [shape[0] for shape in base.shapes if shape]
    size = max(sizes, default=0) or max(dims, default=0)
    if size < 1:
        return f"the DataLoader at {where} does not say how large its batches are: --batch names it"
    said = f"batch_size of the DataLoader at {where}"
    if len(base.loaders) > 1:
        said += f" and of {len(base.loaders) - 1} more"
    return BatchSetting(size, said, loaders=base.loaders)


def _setting_of_name(named: str, args: Sequence[str], files: Sequence[str]) -> BatchSetting:
    file, _, name = named.rpartition(":")
    own = [] if file else list(_arguments(args, name))
    own = own or [each for path in ([file] if file else files) for each in _numbers(path, name)]
    if len(own) == 1:
        return own[0]
    if own:
        raise AuditProblem(
            f"--batch {named}: {len(own)} places set it: {', '.join(each.said for each in own[:4])}",
            "name one: --batch FILE:NAME",
        )
    raise AuditProblem(
        f"--batch {named}: no argument after -- and no assignment of a whole number has this name",
        "give the program's argument after --, as in -- --batch_size=8, or name FILE:VARIABLE",
    )


def _arguments(args: Sequence[str], name: str) -> Iterator[BatchSetting]:
    """Arguments ``--name=8``, ``--name 8`` and ``name=8``."""
    for number, word in enumerate(args):
        option, equals, value = word.partition("=")
        follows = not equals and number + 1 < len(args) and word.startswith("-")
        value = args[number + 1] if follows else value
        if _meant(option.lstrip("-").replace("-", "_"), name) and value.isdecimal() and int(value):
            yield BatchSetting(int(value), f"the argument {option}", argument=number + follows)


def _numbers(file: str, name: str) -> Iterator[BatchSetting]:
    """Assignments of a whole number to the name."""
    try:
        text = Path(file).read_bytes()
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = node.value
        named = len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id
        if not named or not _meant(named, name) or not isinstance(value, ast.Constant):
            continue
        if type(value.value) is int and value.value > 0:
            first = starts[value.lineno - 1] + value.col_offset
            last = starts[(value.end_lineno or 0) - 1] + (value.end_col_offset or 0)
            said = f"{named} at {file}:{node.lineno}"
            yield BatchSetting(value.value, said, file=file, place=(first, last))


def _meant(name: str, wanted: str) -> bool:
    return name == wanted.lstrip("-").replace("-", "_")
