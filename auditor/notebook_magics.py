"""``%load_ext auditor``: the magics ``%%audit`` and ``%audit`` of IPython (docs/python.md)."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from auditor.errors import AuditProblem

if TYPE_CHECKING:
    from auditor.api import Report

USAGE = """\
%%audit [options]        audit the training loop of the cell: its optimizer's steps
%audit [options] STEP    audit STEP, a function without arguments or a "module:function"
"""


def load(shell: Any) -> None:
    """Make the magic ``audit`` known to an IPython shell."""

    def audit(line: str, cell: str | None = None) -> Report | None:
        """Audit a training loop (cell) or a step (line)."""
        try:
            return _step(shell, line) if cell is None else _cell(shell, line, cell)
        except AuditProblem as problem:
            _refuse(str(problem))

    audit.__doc__ = USAGE + _options(cell=True).format_help().partition("\n\n")[2]
    shell.register_magic_function(audit, "line_cell", "audit")


def _refuse(words: str) -> NoReturn:
    from IPython.core.error import UsageError

    raise UsageError(words)


CELLS = (
    "a notebook's cells are in no file: findings in them come without a patch; a module that the "
    "notebook imports has both"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AuditProblem(f"audit: {message}", USAGE.strip())


def _options(*, cell: bool) -> _Parser:
    parser = _Parser("%%audit" if cell else "%audit", add_help=False)
    parser.add_argument("--steps", type=int, default=50, help="how many steps (50)")
    parser.add_argument("--select", default="", help="only these rules or families: SYNC,MEM005")
    parser.add_argument("--ignore", default="", help="not these")
    parser.add_argument("--out", default=None, help="keep recording and report in this folder")
    parser.add_argument("--name", default="", help="a variable that gets the report")
    if not cell:
        parser.add_argument("step", nargs="+")
    return parser


def _parsed(line: str, *, cell: bool) -> tuple[dict[str, Any], str]:
    """The options of an audit, and the words after them."""
    try:
        words = shlex.split(line, posix=cell)  # a step is Python: its quotation marks stay
    except ValueError as error:
        raise AuditProblem(f"audit: {error}") from None
    given = vars(_options(cell=cell).parse_args(words))
    return given, " ".join(given.pop("step", ()))


def _step(shell: Any, line: str) -> Report:
    from auditor import api

    given, words = _parsed(line, cell=False)
    name = given.pop("name")
    module, _, function = words.partition(":")
    target = words if function.isidentifier() and module.replace(".", "").isidentifier() else None
    return _store_report(shell, name, api.audit(target or shell.ev(words), **given))


def _cell(shell: Any, line: str, cell: str) -> Report:
    """Run the cell as the shell would, in its names; raise its error after the report."""
    from auditor import api

    given, _ = _parsed(line, cell=True)
    name = given.pop("name")
    # lines as the cell counts them: the magic is its first
    source = "\n" + shell.transform_cell(cell)
    file = shell.compile.cache(source, _number(shell))
    code = compile(source, file, "exec", flags=shell.compile.flags, dont_inherit=True)
    watched: api.Watched | None = None
    try:
        with api.watching(file, **given) as watched:
            exec(code, shell.user_ns)
    except AuditProblem:
        raise
    except BaseException:
        if watched is not None and watched.made:
            _show(_store_report(shell, name, watched.report))
        raise
    return _store_report(shell, name, watched.report)


def _number(shell: Any) -> int:
    """The number that the notebook shows beside the cell that runs: IPython counts on before it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        named = shell.compile.format_code_name(frame.f_code.co_filename)
        if named is not None:
            return int(named[1].strip("In[]"))
        frame = frame.f_back
    return int(shell.execution_count)


def _store_report(shell: Any, name: str, report: Report) -> Report:
    if report.run.in_process:
        report = replace(report, warnings=(*report.warnings, CELLS))
    if name:
        shell.user_ns[name] = report
    return report


def _show(report: Report) -> None:
    from IPython.display import display

    display(report)
