"""All edits of one file: finds what each means, splices the text, and proves by the syntax tree that nothing else changed."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from auditor.model import Edit
from auditor.patch.detach import detach, values_to_detach
from auditor.patch.keywords import KeywordEdits, change_keywords
from auditor.patch.module import Change, Module, same
from auditor.patch.rename import rename_call
from auditor.patch.source import Refused, SourceText, Splice, parse
from auditor.patch.statements import Block, block_of, called_statements, drop_statements


def edit_key(edit: Edit) -> tuple[str, ...]:
    """What an edit of one file does: two edits with the same key are one."""
    return (str(edit.site.line), edit.action, edit.call, edit.keyword, edit.value, str(edit.span))


def apply_edits(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The file's bytes with all edits made; every edit must be of this one file.

    Raises :class:`Refused` if the file is not what was recorded, an edit cannot be placed, is made already, or
    conflicts with another, or if the syntax of the result is not exactly that of the file with the edits made.
    """
    source = SourceText.from_bytes(raw)
    module = Module(source)
    changes = list(_changes(module, list({edit_key(edit): edit for edit in edits}.values())))
    splices = [splice for change in changes for splice in change.splices]
    _expect_disjoint(splices)
    result = source.splice(splices)
    for change in changes:
        change.rewrite()
    _expect_same(parse(result), module.tree)
    return result


def _changes(module: Module, edits: Sequence[Edit]) -> Iterator[Change]:
    keywords: dict[ast.Call, KeywordEdits] = {}
    doomed: dict[Block, set[ast.stmt]] = {}
    detached: dict[ast.expr, None] = {}
    renamed: dict[ast.Call, Edit] = {}
    for edit in edits:
        module.expect_line(edit)
        if edit.action in ("set_keyword", "drop_keyword"):
            for call in module.calls(edit):
                keywords.setdefault(call, KeywordEdits()).add(edit)
        elif edit.action == "drop_statement":
            for statement in called_statements(module, edit):
                doomed.setdefault(block_of(module, statement), set()).add(statement)
        elif edit.action == "detach":
            detached.update(dict.fromkeys(values_to_detach(module, edit)))
        else:
            for call in module.calls(edit):
                if renamed.setdefault(call, edit) is not edit:
                    raise Refused("an earlier edit replaces the same call")
    yield from (change_keywords(module, call, wanted) for call, wanted in keywords.items())
    yield from (drop_statements(module, block, statements) for block, statements in doomed.items())
    yield from (detach(module, value) for value in detached)
    yield from (rename_call(module, call, edit) for call, edit in renamed.items())


def _expect_disjoint(splices: Sequence[Splice]) -> None:
    for one, other in itertools.pairwise(sorted(splices)):
        if other.start < one.end or (one.start, one.end) == (other.start, other.end):
            raise Refused("the edit overlaps another edit of the same file")


def _expect_same(result: ast.Module, intended: ast.Module) -> None:
    if not same(result, intended):
        raise Refused("the changed text would not mean exactly the intended change")
