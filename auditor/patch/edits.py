"""All edits of one file: finds what each means, splices the text, and proves by the syntax tree
that nothing else changed.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from auditor.model import Edit
from auditor.patch.amp_api import modernize_amp
from auditor.patch.config_values import set_values
from auditor.patch.constants import constant_on_line, set_constant
from auditor.patch.detach import detach, values_to_detach
from auditor.patch.insert import decorate, insert_after_imports, insert_before
from auditor.patch.keywords import KeywordEdits, change_keywords
from auditor.patch.module import Change, Module, same
from auditor.patch.on_device import make_on_device
from auditor.patch.removal import drop_statements
from auditor.patch.rename import rename_call
from auditor.patch.source import Refused, SourceText, Splice, parse
from auditor.patch.statements import called_statements
from auditor.patch.throttle import every_of, logging_statement, skip_compiled, throttle
from auditor.patch.unused import is_package

INSERTS: dict[str, Callable[[Module, Edit], Change]] = {
    "insert_before": insert_before,
    "insert_after_imports": insert_after_imports,
    "decorate": decorate,
}


def edit_key(edit: Edit) -> tuple[str, ...]:
    """What an edit of one file does: two edits with the same key are one."""
    return (str(edit.site.line), edit.action, edit.call, edit.keyword, edit.value, str(edit.span))


def apply_edits(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The file's bytes with all edits made; every edit must be of this one file.

    Raises :class:`Refused` if the file is not what was recorded, an edit cannot be placed, is made
    already, or conflicts with another, or if the syntax of the result is not exactly that of the
    file with the edits made.
    """
    if any(edit.action == "set_value" for edit in edits):
        if not all(edit.action == "set_value" for edit in edits):
            raise Refused("a configuration file takes no edits of Python")
        return set_values(raw, edits)
    module = _untouched.pop(raw, None) or Module(SourceText.from_bytes(raw))
    try:
        changes = _changes(module, list({edit_key(edit): edit for edit in edits}.values()))
        splices = [splice for change in changes for splice in change.splices]
        _expect_disjoint(splices)
    except Refused:
        _untouched.clear()
        _untouched[raw] = module
        raise
    result = module.source.splice(splices)
    for change in changes:
        change.rewrite()
    _expect_same(parse(result), module.tree)
    return result


_untouched: dict[bytes, Module] = {}
"""The file of the last refusal: its tree is as it was parsed, and the next edit is of it mostly."""


@dataclass
class _Wanted:
    """What all edits together want, by the node that they change. A later edit that contradicts an
    earlier one is refused.
    """

    keywords: dict[ast.Call, KeywordEdits] = field(default_factory=dict)
    doomed: dict[ast.stmt, None] = field(default_factory=dict)
    detached: dict[ast.expr, None] = field(default_factory=dict)
    renamed: dict[ast.Call, Edit] = field(default_factory=dict)
    logged: dict[ast.Expr, int] = field(default_factory=dict)
    """Statements that log, and on every how many steps they shall; 0: where nothing is compiled."""
    constants: dict[ast.Constant, str] = field(default_factory=dict)
    inserted: list[Edit] = field(default_factory=list)

    def add(self, module: Module, edit: Edit) -> None:
        """Place one more edit. Raises :class:`Refused`."""
        if edit.action in ("set_keyword", "drop_keyword"):
            for call in module.calls(edit):
                self.keywords.setdefault(call, KeywordEdits()).add(edit)
        elif edit.action == "drop_statement":
            self.doomed.update(dict.fromkeys(called_statements(module, edit)))
        elif edit.action == "detach":
            self.detached.update(dict.fromkeys(values_to_detach(module, edit)))
        elif edit.action in ("throttle", "skip_compiled"):
            self._log_less(logging_statement(module, edit), edit)
        elif edit.action == "set_constant":
            value = constant_on_line(module, edit)
            if self.constants.setdefault(value, edit.value) != edit.value:
                raise Refused(f"an earlier edit wants another `{edit.keyword}`")
        elif edit.action in INSERTS:
            self.inserted.append(edit)
        else:
            for call in module.calls(edit):
                if self.renamed.setdefault(call, edit) is not edit:
                    raise Refused("an earlier edit replaces the same call")

    def _log_less(self, statement: ast.Expr, edit: Edit) -> None:
        every = every_of(edit) if edit.action == "throttle" else 0
        if self.logged.setdefault(statement, every) != every:
            raise Refused("an earlier edit wants another condition for the log")


def _changes(module: Module, edits: Sequence[Edit]) -> list[Change]:
    wanted = _Wanted()
    for edit in edits:
        module.expect_line(edit)
        wanted.add(module, edit)
    changes = list(_written(module, wanted))
    splices = [splice for change in changes for splice in change.splices]
    # An import that something is put behind, or that others import from, stays.
    kept = any(is_package(edit.site.file) for edit in edits[:1]) or any(
        edit.action == "insert_after_imports" for edit in wanted.inserted
    )
    return [*changes, *drop_statements(module, wanted.doomed, splices, keep_imports=kept)]


def _written(module: Module, wanted: _Wanted) -> Iterator[Change]:
    yield from (
        change_keywords(module, call, keywords) for call, keywords in wanted.keywords.items()
    )
    yield from (detach(module, value) for value in wanted.detached)
    for call, edit in wanted.renamed.items():
        yield _replaced(module, call, edit)
    yield from (set_constant(module, value, text) for value, text in wanted.constants.items())
    for edit in wanted.inserted:
        yield INSERTS[edit.action](module, edit)
    # Last, because it puts statements a level deeper, where the changes above would not look for
    # them.
    yield from throttle(module, {each: every for each, every in wanted.logged.items() if every})
    yield from (skip_compiled(module, each) for each, every in wanted.logged.items() if not every)


def _replaced(module: Module, call: ast.Call, edit: Edit) -> Change:
    if edit.action == "modernize_amp":
        return modernize_amp(module, call, edit)
    return (
        make_on_device(module, call)
        if edit.action == "make_on_device"
        else rename_call(module, call, edit)
    )


def _expect_disjoint(splices: Sequence[Splice]) -> None:
    for one, other in itertools.pairwise(sorted(splices)):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            raise Refused("the edit overlaps another edit of the same file")


def _expect_same(result: ast.Module, intended: ast.Module) -> None:
    if not same(result, intended):
        raise Refused("the changed text would not mean exactly the intended change")
