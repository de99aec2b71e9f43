"""Holds the edits of a report against what their rules declare, and against the file as it stands.

A report may be a stranger's. An edit passes only if the rule of its code declares edits of its kind
(``Rule.edits``), if the call that it names is the function that the rule speaks of, by the file's
own imports, and if the file may be a source of the user's.
"""

from __future__ import annotations

import ast
import builtins
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from auditor.model import Edit
from auditor.patch.module import Module, covers
from auditor.patch.source import Refused, SourceText
from auditor.patch.trees import require_own_name
from auditor.permit import ANY, Permit, last, path_of
from auditor.syntax.config_files import SCRIPTS, UnreadableConfig, read_document
from auditor.syntax.index import name_of
from auditor.syntax.qualified_names import kept_as, last_key

MOST_FILES = 500
"""Files that are searched for the call which a setting is given to."""

Read = Callable[[str], "bytes | None"]


class Permitted:
    """What the rules at hand may write, by their codes. ``read`` gives a file's bytes by its name
    in the report.

    ``files`` are further files of the project, in which a setting that stands apart from its call
    may be used, and ``live`` reads them as they are now: what was recorded may be a stranger's.
    """

    def __init__(
        self,
        permits: Mapping[str, tuple[Permit, ...]],
        read: Read,
        files: Iterable[str] = (),
        live: Read | None = None,
    ) -> None:
        self._permits = permits
        self._read = read
        self._files = tuple(files)
        self._live = live or read
        self._parsed: dict[tuple[str, Read], _File | None] = {}

    def require(self, codes: Sequence[str], edit: Edit) -> None:
        """Raise :class:`Refused` with one sentence if no rule of these codes would ask for this
        edit of this file.

        A finding has several codes where one statement has one cause for several rules. An edit
        that cannot be placed in the file at all passes: no patch is made of it, and the patcher
        says why.
        """
        code, known = " or ".join(codes), [code for code in codes if code in self._permits]
        if not known:
            raise Refused(f"no rule of the code {code} is installed")
        covering = [kind for code in known for kind in self._permits[code] if kind.covers(edit)]
        if not covering:
            raise Refused(f"{code} never asks for {_told(edit)}")
        require_own_name(edit.site.file, edit.action)
        if edit.action == "set_value":
            holds = any(self._sets_value(kind, edit) for kind in covering)
        else:
            file = self._file(edit.site.file, self._read)
            holds = (
                file is None
                or not file.has_line(edit)
                or any(self._holds(kind, edit, file) for kind in covering)
            )
        if not holds:
            raise Refused(
                f"by the imports of {edit.site.file}, line {edit.site.line} is not certain to be "
                f"what {code} speaks of"
            )

    def _holds(self, kind: Permit, edit: Edit, file: _File) -> bool:
        if edit.action == "set_constant":
            return self._sets_constant(kind, edit, file)
        if kind.is_elsewhere(edit) and not kind.names(edit):
            return self._sets_default(kind, edit, file)
        if not kind.calls:
            return kind.made is None or edit.value.strip() in kind.made(file.tree, None)
        calls = file.calls(edit)
        return all(
            file.is_call(kind, call)
            and _made(kind, edit, file.tree, call)
            and _drops_plain(edit, call)
            for call in calls
        )

    # -- settings that stand apart from the call ---------------------------------------------------

    def _sets_default(self, kind: Permit, edit: Edit, file: _File) -> bool:
        calls = file.calls(edit)
        defaults = [item.value for call in calls for item in call.keywords if item.arg == "default"]
        alike = len(defaults) == len(calls) and all(_alike(value, edit.value) for value in defaults)
        return not calls or (alike and self._is_taken(kind, kept_as(calls[0]), edit))

    def _sets_constant(self, kind: Permit, edit: Edit, file: _File) -> bool:
        found = list(file.given_on(edit))
        if not found:
            return True  # the patcher finds no such constant either
        if kind.names(edit):
            return all(_is_any_of(file.names.full(target), kind.calls) for target, _ in found)
        return all(_alike(value, edit.value) for _, value in found) and self._is_taken(
            kind, edit.keyword, edit
        )

    def _sets_value(self, kind: Permit, edit: Edit) -> bool:
        suffix = posixpath.splitext(edit.site.file)[1].lower() or posixpath.basename(edit.site.file)
        if kind.names(edit):
            return suffix in SCRIPTS
        key = str(path_of(edit)[-1])
        return (
            suffix not in SCRIPTS
            and self._has_like(edit, suffix)
            and self._is_taken(kind, key, edit)
        )

    def _has_like(self, edit: Edit, suffix: str) -> bool:
        """True if the document holds a flag where a flag is to be written, and a number where a
        number is.
        """
        raw = self._read(edit.site.file)
        if raw is None:
            return True
        try:
            found: object = read_document(raw.decode().removeprefix("\ufeff"), suffix)
            for key in path_of(edit):
                found = found[key]  # type: ignore[index]
        except (UnreadableConfig, UnicodeDecodeError, LookupError, TypeError):
            return True  # the patcher does not find it either
        return isinstance(found, bool) if edit.value in ("True", "False") else type(found) is int

    def _is_taken(self, kind: Permit, key: str, edit: Edit) -> bool:
        """True if some call that the rule speaks of takes its keyword from what has this name."""
        named = dict.fromkeys((edit.site.file, *self._files[:MOST_FILES]))
        return any(
            file.takes(kind, key)
            for name in named
            if (file := self._file(name, self._live)) is not None
        )

    def _file(self, name: str, read: Read) -> _File | None:
        key = (name, read)
        if key not in self._parsed:
            raw = read(name) if name.endswith((".py", ".pyw")) else None
            try:
                self._parsed[key] = None if raw is None else _File(raw)
            except Refused:  # it does not parse: the patcher says so
                self._parsed[key] = None
        return self._parsed[key]


class _File:
    """One file of the user's, parsed."""

    def __init__(self, raw: bytes) -> None:
        self._module = Module(SourceText.from_bytes(raw))
        self.tree = self._module.tree

    @cached_property
    def names(self) -> Names:
        """What its names stand for."""
        return Names.of(self._module.parents)

    def has_line(self, edit: Edit) -> bool:
        """True if the edit's line is as it was recorded."""
        try:
            self._module.expect_line(edit)
        except Refused:
            return False
        return True

    def calls(self, edit: Edit) -> list[ast.Call]:
        """The calls that the edit names, as the patcher finds them; none where it refuses."""
        try:
            return self._module.calls(edit)
        except Refused:
            return []

    def given_on(self, edit: Edit) -> Iterator[tuple[ast.expr, ast.expr | None]]:
        """What the edit's line gives a value, under the edit's name, and that value."""
        for node in self._module.parents:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and covers(node, edit.site.line):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (
                    (target, node.value) for target in targets if name_of(target) == edit.keyword
                )

    def is_call(self, kind: Permit, call: ast.Call) -> bool:
        """True if this is a call of what the permit names."""
        if ANY in kind.calls:
            has_it = any(item.arg == kind.keyword for item in call.keywords)
            return has_it and not self.names.is_standard(call.func)
        method = f".{name_of(call.func)}" in kind.calls and isinstance(call.func, ast.Attribute)
        if method and not self.names.is_standard(call.func):
            return True
        return _is_any_of(self.names.full(call.func), kind.calls)

    def takes(self, kind: Permit, key: str) -> bool:
        """True if a call of what the permit names is given the keyword by an expression of this
        name.
        """
        for node in self._module.parents:
            if isinstance(node, ast.Call) and self.is_call(kind, node):
                given = [item.value for item in node.keywords if item.arg == kind.keyword]
                if any(last_key(value) == key for value in (given or node.args)):
                    return bool(key)
        return False


def _is_any_of(found: set[str] | None, wanted: Iterable[str]) -> bool:
    """True if all that a name may stand for is one of the wanted functions, or of the same name
    further inside their module.
    """
    homes = {
        (name.rpartition(".")[0] + ".", last(name)) for name in wanted if not name.startswith(".")
    }
    return bool(found) and all(
        any(name.startswith(home) and last(name) == own for home, own in homes)
        for name in found or ()
    )


def _drops_plain(edit: Edit, call: ast.Call) -> bool:
    """True if what the edit takes away computes nothing: what takes the patch back must not bring
    in a stranger's code.
    """
    if edit.action == "drop_keyword":
        return all(
            isinstance(item.value, ast.Constant)
            for item in call.keywords
            if item.arg == edit.keyword
        )
    if edit.action != "drop_statement":
        return True
    given = [*call.args, *(item.value for item in call.keywords)]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    while isinstance(owner, (ast.Call, ast.Attribute)):
        if isinstance(owner, ast.Call):
            given += [*owner.args, *(item.value for item in owner.keywords)]
        owner = owner.func if isinstance(owner, ast.Call) else owner.value
    return isinstance(owner, ast.Name) and all(
        isinstance(each, (ast.Constant, ast.Name, ast.Attribute)) for each in given
    )


def _made(kind: Permit, edit: Edit, tree: ast.Module, call: ast.Call) -> bool:
    return kind.made is None or edit.value.strip() in kind.made(tree, call)


def _alike(value: ast.expr | None, text: str) -> bool:
    """True if a flag is to stand in the place of a flag, or a number in that of a number."""
    if not isinstance(value, ast.Constant):
        return False
    return isinstance(value.value, bool) if text in ("True", "False") else type(value.value) is int


def _told(edit: Edit) -> str:
    """The edit in a few words."""
    what = edit.call or edit.keyword or "a line"
    value = f" to `{edit.value}`" if edit.value else ""
    named = f" `{edit.keyword}` of" if edit.call and edit.keyword else ""
    return f"{edit.action}{named} `{what}`{value}" + (" as a safe patch" if edit.safe else "")


# -- names -----------------------------------------------------------------------------------------
# What a name in a file stands for: followed through its imports, plain aliases and base classes,
# never by running anything.


_STEPS = 4
"""Aliases and base classes that are followed from one to the next."""

_OWN = "."
"""Before the name of what the user's own packages export: ``from .data import Loader``."""


@dataclass
class Names:
    """The names that a file binds: full names of what it imports, and those that it binds in
    another way.
    """

    imported: dict[str, set[str]] = field(default_factory=dict)
    aliases: dict[str, list[ast.expr]] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: Iterable[ast.AST]) -> Names:
        """The names of a file, from all its nodes."""
        names = cls()
        aliased: set[int] = set()
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names._import(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_path(node.value):
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    names.aliases.setdefault(target.id, []).append(node.value)
                    aliased.add(id(target))
            elif isinstance(node, ast.ClassDef) and node.bases:
                names.aliases.setdefault(node.name, []).append(node.bases[0])
            elif id(node) not in aliased:
                names.local.update(_bound(node))
        return names

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for item in node.names:
            if isinstance(node, ast.Import):
                whole = item.name if item.asname else item.name.partition(".")[0]
                self.imported.setdefault(item.asname or whole, set()).add(whole)
                continue
            home = f"{_OWN if node.level else ''}{node.module or ''}"
            if item.name == "*":
                self.stars.append(home)
            else:
                self.imported.setdefault(item.asname or item.name, set()).add(f"{home}.{item.name}")

    def full(self, expression: ast.expr, *, steps: int = _STEPS) -> set[str] | None:
        """All full names that an expression may stand for; None if it may also be an object that
        the file makes or is given.
        """
        root, path = _split(expression)
        if root is None or root in self.local or not steps:
            return None
        found = {*self.imported.get(root, ())}
        for value in self.aliases.get(root, ()):
            of_alias = self.full(value, steps=steps - 1)
            if of_alias is None:
                return None
            found |= of_alias
        if not found and hasattr(builtins, root):
            found = {f"builtins.{root}"}
        elif not found:
            found = {f"{module}.{root}" for module in self.stars}
        return {".".join((name, *path)) for name in found} or None

    def is_standard(self, expression: ast.expr) -> bool:
        """True if an expression may stand for something of Python's standard library."""
        root, _ = _split(expression)
        if root is None:
            return False
        found = {
            *self.imported.get(root, ()),
            *(name for value in self.aliases.get(root, ()) for name in self.full(value) or ()),
        }
        known = bool(found) or root in self.local or root in self.aliases
        return any(_is_standard(name) for name in found) or (not known and hasattr(builtins, root))


def _is_standard(name: str) -> bool:
    root = name.partition(".")[0]
    return root == "builtins" or root in sys.stdlib_module_names


def _split(expression: ast.expr) -> tuple[str | None, tuple[str, ...]]:
    """``a`` and ``("b", "c")`` of ``a.b.c``; None where it does not begin with a name."""
    path: list[str] = []
    while isinstance(expression, ast.Attribute):
        path.append(expression.attr)
        expression = expression.value
    return (expression.id if isinstance(expression, ast.Name) else None), tuple(reversed(path))


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and _split(node)[0] is not None


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
