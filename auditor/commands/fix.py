"""``audit fix``: the patches of a report as one diff, or applied to the user's files."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import click

from auditor import patch
from auditor.commands import reading
from auditor.errors import AuditProblem
from auditor.model import Edit, Report


def fix(
    *,
    report: str,
    apply: bool,
    select: tuple[str, ...],
    unsafe: bool,
    debug: bool,
) -> int:
    """Print or apply; returns the exit code."""
    root = Path.cwd()
    edits = _edits(reading.report_of(Path(report)), select, unsafe=unsafe)
    for edit in edits:
        if not _writes_plain_values(edit):
            raise AuditProblem(f"{report}: {edit.site}: `{edit.value}` is not what a rule would write", "the report was changed")
    planned = patch.plan(edits, lambda file: _read(root, file))
    for edit, reason in planned.refused:
        click.echo(f"audit: {edit.site}: {reason}", err=True)
    if not planned.files:
        click.echo("audit: nothing to patch" + ("" if unsafe else " (unsafe patches are shown with --unsafe)"), err=True)
        return 0
    if not apply:
        sys.stdout.buffer.write(planned.diff)
        sys.stdout.buffer.flush()
        return 0
    try:
        patch.write(planned, root)
    except patch.Refused as reason:
        raise AuditProblem(str(reason), "run audit again on the files as they are now") from None
    for file in planned.files:
        click.echo(f"patched {file.path} ({len(file.edits)} change{'s' * (len(file.edits) != 1)})")
    return 0


def _edits(report: Report, select: tuple[str, ...], *, unsafe: bool) -> list[Edit]:
    words = set(select)
    chosen = [f for f in report.findings if not words or f.code in words or f.code.rstrip("0123456789") in words]
    return [edit for f in chosen if f.remedy is not None for edit in f.remedy.edits if edit.safe or unsafe]


def _writes_plain_values(edit: Edit) -> bool:
    """True if what comes into the source is a name, a number or a flag, or a call with such: a report may be a stranger's."""
    if edit.action not in ("set_keyword", "rename_call"):
        return True
    try:
        node: ast.AST = ast.parse(edit.value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the patch refuses it, and says why
        return True
    if edit.action == "rename_call" and isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and all(map(_plain, (*node.args, *(item.value for item in node.keywords))))
    return _plain(node)


def _plain(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes)))


def _read(root: Path, file: str) -> bytes | None:
    path = root / file
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):  # a name that cannot be one, in a report of a stranger's
        return None
