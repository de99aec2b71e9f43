"""What a call is given as a keyword: as written, what it came to, and where that was set."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span, span_of, the_only, unparsed
from auditor.model import Action, Edit, Remedy, Site
from auditor.syntax.index import name_of, nodes_in, targets_of

POSITIONS = {
    ("cuda", "non_blocking"): 1,
    ("copy_", "non_blocking"): 1,
    ("zero_grad", "set_to_none"): 0,
    ("backward", "retain_graph"): 1,
    ("set_detect_anomaly", "mode"): 0,
}
"""Keywords of methods that may be given by position, and at which."""

LONGEST = 100
"""Characters of a line that are quoted."""


@dataclass(frozen=True)
class CallArgument:
    """One keyword of one call. ``written``: empty if the call decides, by a constant or none."""

    keyword: str
    ran: object
    site: Site | None
    call: str
    span: Span | None = None
    written: str = ""
    set_at: Site | None = None
    why: str = ""
    """What makes the expression come to something else than its author thought, if that shows."""
    home: Home | None = None
    shared: bool = False
    """The home's name is read for something else, too."""
    positional: bool = False
    constant: str = ""
    """The constant that the call is given; empty if it is given none."""

    @property
    def said(self) -> str:
        """``non_blocking=use_cuda, which was False (set at train.py:12: `use_cuda = device ==
        "cuda"`)``, or ``non_blocking=False``; empty if the call is not given it.
        """
        if self.constant:
            return f"{self.keyword}={self.constant}"
        where = f" ({self.where})" if self.where else ""
        return f"{self.keyword}={self.written}, which was {self.ran}{where}" if self.written else ""

    @property
    def where(self) -> str:
        """Where its value was set, and by what; empty if that does not show."""
        if self.set_at is None:
            return ""
        line = self.set_at.text[:LONGEST] + ("..." if len(self.set_at.text) > LONGEST else "")
        return f"set at {self.set_at}: `{line}`" if line else f"set at {self.set_at}"

    @property
    def advice(self) -> str:
        """A sentence to end a remedy with, with a space; empty if the call decides."""
        if not self.written:
            return ""
        why = f" {self.why}" if self.why else ""
        return (
            f" Here `{self.written}` decides, and was "
            f"{self.ran}{f' ({self.where})' if self.where else ''}.{why}"
        )

    @property
    def refused(self) -> str | None:
        """Why nothing is edited; None if something can be."""
        if self.home is not None and not (self.positional and self.home.own):
            return None
        if not self.written:
            return f"`{self.keyword}` is given by its position" if self.positional else None
        place = f", which is {self.where}" if self.where else ""
        return f"`{self.keyword}` is decided by `{self.written}`{place}: change it there"

    def edits(self, value: str, *, safe: bool = False, reason: str) -> tuple[Edit, ...]:
        """The edit that sets the keyword, where it is written; none without one such place."""
        if self.home is None or self.refused is not None:
            return ()
        if self.shared:
            safe, reason = False, f"{reason}; what else reads `{self.written}` changes with it"
        edit = self.home.edit(value, safe=safe, reason=reason)
        return (replace(edit, span=self.span) if self.home.own else edit,)

    def remedy(self, text: str, value: str, *, safe: bool = False, reason: str) -> Remedy:
        """``text``, with what decides, and the edit that sets the keyword or why there is none."""
        edits = self.edits(value, safe=safe, reason=reason)
        return Remedy(text + self.advice, edits, refused=self.refused)


def given(
    source: Source,
    configs: Configs,
    site: Site | None,
    call: str,
    keyword: str,
    *,
    ran: object,
    span: Span | None = None,
) -> CallArgument:
    """What the call of ``call`` on the site's line is given as ``keyword``, which was ``ran``."""
    found = _call(source, site, call, keyword, span)
    written, positional = _argument(found, call, keyword)
    plain = CallArgument(keyword, ran, site, call, span, positional=positional)
    if site is None:
        return plain
    if written is None or isinstance(written, ast.Constant):
        own = Home(site, "set_keyword", call, keyword, own=True)
        return replace(plain, home=own, constant=unparsed(written) if written is not None else "")
    set_at, value = _set_at(source, configs, written, call)
    home = home_of_value(source, configs, written, call, ran=ran)
    key = last_key(written)
    return replace(
        plain,
        written=unparsed(written),
        set_at=set_at,
        why=_why(value, ran) or _why(written, ran),
        home=home,
        shared=key != keyword and any(reads_of(source, key, apart_from=keyword)),
    )


def _call(
    source: Source, site: Site | None, call: str, keyword: str, span: Span | None
) -> ast.Call | None:
    if site is None:
        return None
    calls = [node for node in source.calls_at(site) if name_of(node.func) == call]
    exact = [node for node in calls if span_of(node) == span]
    with_it = [node for node in calls if _argument(node, call, keyword)[0] is not None]
    return next(iter(exact or with_it or calls), None)


def _argument(found: ast.Call | None, call: str, keyword: str) -> tuple[ast.expr | None, bool]:
    """The expression, and whether it is given by its position."""
    if found is None:
        return None, False
    named = next((item.value for item in found.keywords if item.arg == keyword), None)
    at = POSITIONS.get((call, keyword))
    if (
        named is None
        and at is not None
        and len(found.args) > at
        and not any(isinstance(a, ast.Starred) for a in found.args)
    ):
        return found.args[at], True
    return named, False


# -- where a name was set --------------------------------------------------------------------------


def _set_at(
    source: Source, configs: Configs, written: ast.expr, call: str
) -> tuple[Site | None, ast.expr | None]:
    """The only line of all that sets the one name that the expression hangs on, and its value."""
    inner = {node.value for node in nodes_in(written, ast.Attribute)}
    names = (node for node in nodes_in(written, ast.Name, ast.Attribute) if node not in inner)
    key = last_key(written) or the_only({name_of(node) for node in names})
    if not key:
        return None, None
    found: list[tuple[Site | None, ast.expr | None]] = [
        (source.site_of(file, node), node.value)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        else (None, None)
        for file, node in _setters(source, key, call)
    ]
    found += [(source.site_of(file, node), None) for file, node in options_of(source, key)]
    found += [(each.site, None) for each in configs.settings if each.where[-1:] == (key,)]
    return found[0] if len(found) == 1 else (None, None)


def _why(value: ast.expr | None, ran: object) -> str:
    """A comparison of a device with a string, which is not what it looks like."""
    if (
        ran is not False
        or not isinstance(value, ast.Compare)
        or len(value.ops) != 1
        or not isinstance(value.ops[0], ast.Eq)
    ):
        return ""
    sides = [value.left, value.comparators[0]]
    kinds = [
        each.value
        for each in sides
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    devices = [each for each in sides if name_of(each).lower().endswith("device")]
    if len(devices) != 1 or kinds != ["cuda"]:
        return ""
    code = unparsed(devices[0])
    return (
        f'`{unparsed(value)}` is False for torch.device("cuda") and for "cuda:0": compare '
        f"torch.device({code}).type."
    )


# -- argument origin -------------------------------------------------------------------------------
# Where the value of an argument is written: in the call, as the default of an option, as a
# constant, or in a configuration file.


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
            self.site, self.action, self.call, self.keyword, value, safe=safe, reason=reason
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
    """The one line of a shell script or ``.env`` that sets the allocator's variable, if any."""
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
    found = _setters(source, key, call)
    if len(found) != 1:
        return
    ((file, node),) = found
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant):
        yield node.value.value, Home(source.site_of(file, node), "set_constant", keyword=key)


def _setters(source: Source, key: str, call: str) -> list[tuple[str, Any]]:
    return [
        (file, node)
        for file in source.texts
        for node in source.nodes(file)
        if _sets(node, key, call)
    ]


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
