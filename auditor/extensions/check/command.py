"""``audit check``: files looked at without running them, for pre-commit and editors."""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from auditor import __version__, amounts
from auditor.cli import console
from auditor.cli.usage import EXIT_FOUND, EXIT_IMPOSSIBLE
from auditor.errors import AuditProblem
from auditor.model import Finding, PeakBytes, Report, Run, Severity, Site, Verdict, finding_key
from auditor.recordings.writer import decode_source
from auditor.syntax.index import LOOPS, Index
from auditor.syntax.silence import names_of, silenced

# -- proofs ----------------------------------------------------------------------------------------
# What a source file alone proves, without torch: each proof is a function of :class:`Source` that
# gives calls and words. Where the source does not settle it, nothing is said: a run tells more.


class Proof(NamedTuple):
    """A place in a file: 1-based line and column, and what is wrong there."""

    line: int
    column: int
    code: str
    severity: Severity
    message: str


@dataclass(frozen=True)
class Source:
    """A parsed file, and which object of torch each of its names is."""

    index: Index

    @cached_property
    def _names(self) -> Mapping[str, str]:
        """Dotted paths of imported names. A name that is assigned another value is left out."""
        found: dict[str, set[str]] = {}
        for plain in self.index.of(ast.Import):
            for each in plain.names:
                name = each.asname or each.name.partition(".")[0]
                found.setdefault(name, set()).add(each.name if each.asname else name)
        for node in self.index.of(ast.ImportFrom):
            for each in node.names:
                path = f"{'.' * node.level}{node.module or ''}.{each.name}"
                found.setdefault(each.asname or each.name, set()).add(path)
        return {
            name: next(iter(paths))
            for name, paths in found.items()
            if len(paths) == 1 and name not in self._rebound
        }

    @cached_property
    def _rebound(self) -> frozenset[str]:
        stored = (
            node.id for node in self.index.of(ast.Name) if isinstance(node.ctx, ast.Store | ast.Del)
        )
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        defined = (node.name for node in self.index.nodes if isinstance(node, kinds))
        return frozenset((*stored, *defined, *(node.arg for node in self.index.of(ast.arg))))

    def path(self, node: ast.expr) -> str:
        """``torch.nn.functional.softmax`` for whatever names it here; empty for anything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return ""
        return ".".join((self._names[node.id], *reversed(parts)))

    def calls(self, *paths: str) -> Iterator[ast.Call]:
        """Calls of these functions and classes of torch."""
        return (call for call in self.index.of(ast.Call) if self.path(call.func) in paths)


def proofs(text: str) -> list[Proof]:
    """All that a file's text proves, in the order of its lines. Raises ``SyntaxError``."""
    source = Source(Index(ast.parse(text)))
    found = (each for look in LOOKS for each in look(source))
    return sorted(found, key=lambda each: (each.line, each.column, each.code))


def _at(node: ast.expr | ast.stmt, code: str, severity: Severity, message: str) -> Proof:
    return Proof(node.lineno, node.col_offset + 1, code, severity, message)


# -- each proof -------------------------------------------------------------------------------------

AMP = {
    f"torch.{device}.amp.{name}": f'torch.amp.{name}("{device}", ...)'
    for device in ("cuda", "cpu")
    for name in ("autocast", "GradScaler")
}
"""Deprecated since torch 2.4, by what takes their place."""


def deprecated_amp(source: Source) -> Iterator[Proof]:
    """AMP005."""
    for call in source.calls(*AMP):
        old = source.path(call.func)
        yield _at(call, "AMP005", Severity.NOTE, f"{old} is deprecated: {AMP[old]}")


def anomaly_mode(source: Source) -> Iterator[Proof]:
    """NUM009: switched on by a statement of the module that always runs, and never off again."""
    calls = list(source.calls("torch.autograd.set_detect_anomaly"))
    if len(calls) != 1 or len(list(source.index.up(calls[0]))) != 2:  # a statement, the module
        return
    (call,) = calls
    given = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
    if given and isinstance(given[0], ast.Constant) and given[0].value is True:
        said = "anomaly mode is on for the whole program: each backward checks every result for NaN"
        yield _at(call, "NUM009", Severity.WARNING, f"{said}; it is for debugging")


HOUSEKEEPING = {
    "torch.cuda.empty_cache": "gives the allocator's free memory back to the driver, which has to "
    "be asked for it again",
    "torch.cuda.ipc_collect": "waits for all kernels and asks the driver",
    "torch.cuda.reset_peak_memory_stats": "restarts the counters, which then never show the peak "
    "of the run",
}


def housekeeping_in_steps(source: Source) -> Iterator[Proof]:
    """SYNC009: a statement of the loop that trains, on each of its rounds."""
    for call in source.calls(*HOUSEKEEPING):
        statement, loop = [*source.index.up(call), None][:2]
        if isinstance(loop, LOOPS) and statement in loop.body and _trains(source, loop):
            path = source.path(call.func)
            said = f"{path}() runs on every step: it {HOUSEKEEPING[path]}"
            yield _at(call, "SYNC009", Severity.WARNING, said)


def _trains(source: Source, loop: ast.AST) -> bool:
    """Whether the rounds of a loop, none of an inner one, end in a step of an optimizer."""

    def mine(name: str) -> bool:
        return any(
            source.index.nearest(call, *LOOPS, ast.FunctionDef, ast.AsyncFunctionDef) is loop
            for call in source.index.calls.get(name, ())
        )

    return mine("backward") and mine("step")


def dropped_compile(source: Source) -> Iterator[Proof]:
    """COMP004: the result of ``torch.compile`` is dropped."""
    for call in source.calls("torch.compile"):
        if isinstance(source.index.parents.get(call), ast.Expr):
            said = "torch.compile returns what is compiled, and the result is dropped: the original"
            yield _at(call, "COMP004", Severity.WARNING, f"{said} runs")


LOSSES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("cross_entropy", "CrossEntropyLoss"): ("softmax", "applies softmax itself: give it logits"),
    ("binary_cross_entropy_with_logits", "BCEWithLogitsLoss"): (
        "sigmoid",
        "applies sigmoid itself: give it logits",
    ),
    ("nll_loss", "NLLLoss"): ("softmax", "takes log-probabilities: use log_softmax"),
}
"""Losses as a function and a class, whose result they must not be given, and why."""


def doubled_activation(source: Source) -> Iterator[Proof]:
    """TRAIN002, in one expression."""
    for call in source.index.of(ast.Call):
        named = (each.value for each in call.keywords if each.arg == "input")
        given = call.args[0] if call.args else next(named, None)
        if not isinstance(given, ast.Call):
            continue
        for (function, module), (wrong, why) in LOSSES.items():
            name = _loss(source, call, function, module)
            rooms = ("torch", "torch.nn.functional", "torch.special")
            if name and source.path(given.func) in {f"{room}.{wrong}" for room in rooms}:
                said = f"{name} {why}; it is given the result of {wrong}"
                yield _at(call, "TRAIN002", Severity.ERROR, said)


def _loss(source: Source, call: ast.Call, function: str, module: str) -> str:
    if source.path(call.func) == f"torch.nn.functional.{function}":
        return function
    made = call.func
    built = isinstance(made, ast.Call) and source.path(made.func) == f"torch.nn.{module}"
    return module if built else ""


LOOKS: tuple[Callable[[Source], Iterator[Proof]], ...] = (
    deprecated_amp,
    anomaly_mode,
    housekeeping_in_steps,
    dropped_compile,
    doubled_activation,
)


def certain(path: Path, codes: Collection[str]) -> list[Proof]:
    """What the text of a program proves of these rules, without notes, and without rules that its
    comments silence anywhere; nothing of a file that cannot be read.
    """
    try:
        text = _read_source(path)
        proven = proofs(text)
    except (AuditProblem, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    ignored = {code for line in text.split("\n") for code in silenced(line) or ()}
    return [
        each
        for each in proven
        if each.severity is not Severity.NOTE
        and each.code in codes
        and not names_of(each.code) & ignored
    ]


# -- command ---------------------------------------------------------------------------------------

LARGEST = 4 << 20
"""Bytes of a file that is read: one that people write is smaller."""

REST = "source alone proves little: audit run measures the rest"


def check(
    *,
    files: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    form: str,
) -> int:
    """Look at the files; returns the exit code."""
    found: list[tuple[str, Proof, str]] = []
    unread = 0
    paths = list(_python(files))
    for path in paths:
        text = _read_source(path)
        try:
            proven = proofs(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            unread += 1
            where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
            reason = getattr(error, "msg", None) or str(error) or type(error).__name__
            console.say(f"audit: {path} is not Python{where}: {reason}", err=True)
            continue
        lines = text.split("\n")
        found += (
            (str(path), each, lines[each.line - 1].strip())
            for each in proven
            if (not select or names_of(each.code) & set(select))
            and not names_of(each.code) & {*ignore, *(silenced(lines[each.line - 1]) or ())}
        )
    if form == "sarif":
        console.hand_over(_sarif(found), form=form)
    else:
        for file, each, _ in found:
            place = f"{file}:{each.line}:{each.column}"
            console.say(f"{place}: {each.code} {each.severity.value}: {each.message}")
        counted = amounts.count(len(paths) - unread, "file")
        console.say(f"{amounts.count(len(found), 'finding')} in {counted}; {REST}", err=True)
    least = Severity(fail_on).rank if fail_on != "never" else -1
    if any(each.severity.rank <= least for _, each, _ in found):
        return EXIT_FOUND
    return EXIT_IMPOSSIBLE if unread else 0


def _python(files: Iterable[str]) -> Iterator[Path]:
    """These files, and Python files below folders. AuditProblem if absent, or a notebook."""
    for file in files:
        path = Path(file)
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*.py") if each.is_file())
        elif not path.exists():
            raise AuditProblem(f"there is no file {file}")
        elif path.suffix == ".ipynb":
            raise AuditProblem(
                f"{path} is a notebook, and audit check reads Python files",
                f"jupyter nbconvert --to script {path}",
            )
        else:
            yield path


def _read_source(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise AuditProblem(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise AuditProblem(f"{path} is larger than {amounts.size(LARGEST)}", "leave it out")
    return decode_source(raw)


def _sarif(found: list[tuple[str, Proof, str]]) -> str:
    from auditor.judging import catalogue

    findings = tuple(
        Finding(
            site := Site(file, each.line, "", text),
            each.message,
            severity=each.severity,
            code=each.code,
            name=catalogue.rule(each.code).name(),
            key=finding_key(each.code, site),
            seen_on="source",
        )
        for file, each, text in found
    )
    codes = dict.fromkeys((each.code, each.name) for each in findings)
    run = Run("check", 0, 0, 1, "cpu", "completed", None, None, PeakBytes(), "", "", "")
    verdicts = tuple(Verdict(code, name, "found") for code, name in codes)
    tool = {"name": "torch-step-audit", "version": __version__}
    report = Report(run, verdicts, findings, (), tool=tool)
    return str(catalogue.renderer("sarif").render(report))
