"""Where the value of an argument is written: in the call, as the default of an option, as a
constant, or in a configuration file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, the_only
from auditor.model import Action, Edit, Site
from auditor.syntax.index import name_of, nodes_in, targets_of

PLACES = "only where blocks lie in memory changes, not what is computed"
"""Why a setting of the allocator is safe."""


@dataclass(frozen=True)
class Home:
    """The one place to change a value at. ``own``: it is the call itself."""

    site: Site
    action: Action
    call: str = ""
    keyword: str = ""
    own: bool = False

    def edit(self, value: str, *, safe: bool = False, reason: str) -> Edit:
        """The edit that sets the value here."""
        return Edit(
            self.site,
            self.action,
            self.call,
            self.keyword,
            value,
            safe=safe,
            reason=reason,
        )


def home_of_value(
    source: Source, configs: Configs, written: ast.expr, call: str, *, ran: object
) -> Home | None:
    """The one place where an expression's value ``ran`` is written; None if not certain."""
    return the_only(
        home
        for value, home in _candidates(source, configs, written, call)
        if type(value) is type(ran) and value == ran
    )


def _candidates(
    source: Source, configs: Configs, written: ast.expr, call: str
) -> Iterator[tuple[object, Home]]:
    """Values that an expression may name, and where they stand."""
    key = last_key(written)
    if key:
        yield from _options(source, key)
        yield from _constants(source, key, call)
        named = the_only(setting for setting in configs.settings if setting.where[-1:] == (key,))
        if named is not None:
            yield named.value, Home(named.site, "set_value", keyword=named.keyword)


def options_of(source: Source, key: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls that declare an option which is kept under this name, each with its file."""
    return ((file, call) for file, call in source.calls_of(*OPTIONS) if kept_as(call) == key)


def allocator_home(configs: Configs) -> Home | None:
    """The one line of a shell script or ``.env`` that sets the allocator's variable; None if there
    is none, or several.
    """
    if len(configs.allocator) != 1:
        return None
    line = configs.allocator[0]
    return Home(line.site, "set_value", keyword=str(line.where[0]))


def reads_of(source: Source, key: str, *, apart_from: str) -> Iterator[ast.expr]:
    """Where a name is read for anything but the keyword ``apart_from`` of a call."""
    for index in map(source.index, source.texts):
        for node in index.named.get(key, ()):
            keyword = index.parents[node]
            given = isinstance(keyword, ast.keyword) and keyword.arg == apart_from
            if isinstance(node.ctx, ast.Load) and not given:
                yield node


def _options(source: Source, key: str) -> Iterator[tuple[object, Home]]:
    """Options under this name with a literal default. Two of one name count as two."""
    for file, call in options_of(source, key):
        default = next((item.value for item in call.keywords if item.arg == "default"), None)
        if isinstance(default, ast.Constant):
            site = source.site_of(file, call)
            yield default.value, Home(site, "set_keyword", name_of(call.func), "default")


def _constants(source: Source, key: str, call: str) -> Iterator[tuple[object, Home]]:
    """``num_workers = 0``, a variable or class field that nothing else in any file sets."""
    found = [
        (file, node)
        for file in source.texts
        for node in source.nodes(file)
        if _sets(node, key, call)
    ]
    if len(found) != 1:
        return
    ((file, node),) = found
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
        yield node.value.value, Home(source.site_of(file, node), "set_constant", keyword=key)


def _sets(node: ast.AST, key: str, call: str) -> bool:
    """True if it gives the name a value: assignment, parameter, loop, another call's keyword."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.NamedExpr)):
        return any(_names(target, key) for target in targets_of(node))
    if isinstance(node, ast.Call):
        return name_of(node.func) != call and any(item.arg == key for item in node.keywords)
    return isinstance(node, (ast.arg, ast.alias)) and key in (
        getattr(node, "arg", ""),
        getattr(node, "asname", ""),
    )


def _names(target: ast.expr, key: str) -> bool:
    return any(name_of(node) == key for node in nodes_in(target, ast.Name, ast.Attribute))


# -- names of options ------------------------------------------------------------------------------

OPTIONS = frozenset({"add_argument", "option"})
"""Functions of argparse and click that declare an option with its ``default``."""

CASTS = frozenset({"int", "bool"})


def last_key(written: ast.expr) -> str:
    """By what name an expression asks for its value; empty if by none.

    ``num_workers`` of ``cfg.data.num_workers``, ``cfg["num_workers"]``,
    ``int(cfg.get("num_workers", 0))`` and ``num_workers``.
    """
    if isinstance(written, ast.Call):
        name = name_of(written.func)
        if name in CASTS and len(written.args) == 1:
            return last_key(written.args[0])
        return text_of(written.args[0]) if name == "get" and written.args else ""
    if isinstance(written, ast.Subscript):
        return text_of(written.slice)
    return name_of(written)


def kept_as(option: ast.Call) -> str:
    """Under which name the value of an option is kept: ``dest``, else its first long name."""
    given = next((text_of(item.value) for item in option.keywords if item.arg == "dest"), "")
    names = [text_of(each) for each in option.args]
    long = [name[2:].partition("/")[0].replace("-", "_") for name in names if name.startswith("--")]
    return given or next(iter(long), "")


def text_of(node: ast.expr) -> str:
    """The text of a string literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
