"""All edits of one file: splices the text, and proves by the syntax tree that no more changed."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from auditor.model import Edit
from auditor.patch.config_values import set_values
from auditor.patch.module import (
    Module,
    Refused,
    SourceChange,
    SourceText,
    Splice,
    block_of,
    called_statements,
    parse,
    parse_expression,
    same,
)
from auditor.patch.removal import detach, drop_statements, values_to_detach
from auditor.patch.throttle import every_of, logging_statement, throttle
from auditor.syntax.index import name_of, parents_of, root_of, targets_of
from auditor.syntax.reaching import FACTORIES, made_for

# -- insert ----------------------------------------------------------------------------------------
# Puts a call before a statement, behind the imports, or on a function as its decorator. A report
# may be a stranger's, so only calls listed here are written.


_METHODS = frozenset({"unscale_", "zero_grad", "compile"})
_AFTER_IMPORTS = frozenset({"torch.set_float32_matmul_precision"})
_DECORATORS = frozenset({"torch.no_grad"})
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def insert_before(module: Module, edit: Edit) -> SourceChange:
    """The change that puts the call ``value`` on a line before the statement on the edit's."""
    call = _wanted_call(edit)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method not in _METHODS:
        raise _unknown(edit)
    here = [
        node
        for node in module.on(edit.site.line, ast.stmt)
        if not isinstance(getattr(node, "body", None), list)
    ]
    if len(here) != 1:
        raise Refused(f"line {edit.site.line} is not one plain statement")
    (statement,) = here
    added = _line_before(module, statement, edit.value.strip())
    block = block_of(module, statement)
    _expect_new(call, block)
    return SourceChange((added,), partial(_put, block, ast.Expr(value=call), statement))


def decorate(module: Module, edit: Edit) -> SourceChange:
    """The change that puts ``@value`` right above the function which begins on the edit's line."""
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _DECORATORS or call.args:
        raise _unknown(edit)
    line = edit.site.line
    here = [node for node in module.on(line, ast.FunctionDef) if node.lineno == line]
    if len(here) != 1:
        raise Refused(f"line {line} begins no function")
    (function,) = here
    if any(name_of(call.func) in ast.unparse(each) for each in function.decorator_list):
        raise Refused(f"`{edit.value}` is there already")
    expect_torch(module)
    added = _line_before(module, function, f"@{edit.value.strip()}")
    return SourceChange((added,), partial(function.decorator_list.append, call))


def insert_after_imports(module: Module, edit: Edit) -> SourceChange:
    """The change that puts the call ``value`` behind the file's imports, with ``import torch``."""
    call = _wanted_call(edit)
    if ast.unparse(call.func) not in _AFTER_IMPORTS:
        raise _unknown(edit)
    _expect_new(call, module.tree.body)
    expect_torch(module)
    last = _last_import(module)
    end = module.source.span(last)[1]
    if not module.source.rest_is_idle(end):
        raise Refused("the last import shares its line with another statement")
    at = module.source.line_end(end)
    return SourceChange(
        (Splice(at, at, f"\n\n{edit.value.strip()}"),),
        partial(_put, module.tree.body, ast.Expr(value=call), last, after=True),
    )


def expect_torch(module: Module) -> None:
    """Raise :class:`Refused` unless an import at the top makes the name ``torch`` known."""
    for statement in module.tree.body:
        for item in statement.names if isinstance(statement, ast.Import) else ():
            if item.name.partition(".")[0] == "torch" and item.asname is None:
                return
    raise Refused("the file has no `import torch` at its top")


def _wanted_call(edit: Edit) -> ast.Call:
    call = parse_expression(edit.value)
    if (
        not isinstance(call, ast.Call)
        or call.keywords
        or not all(
            isinstance(root_of(each), (ast.Name, ast.Constant)) for each in [call.func, *call.args]
        )
    ):
        raise Refused(f"`{edit.value}` is not a plain call")
    return call


def _unknown(edit: Edit) -> Refused:
    return Refused(f"`{edit.value}` is not a call that may be inserted")


def _line_before(module: Module, statement: ast.stmt, text: str) -> Splice:
    source = module.source
    start = source.span(statement)[0]
    indent = source.before(start)
    if indent.strip() or source.is_joined(start):
        raise Refused("the statement does not begin its line")
    return Splice(start, start, f"{text}\n{indent}")


def _expect_new(call: ast.Call, statements: list[ast.stmt]) -> None:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and same(node.func, call.func):
                raise Refused(f"`{ast.unparse(call.func)}` is already called there")


def _last_import(module: Module) -> ast.stmt:
    """The last import before the first definition."""
    body = module.tree.body
    top = itertools.takewhile(lambda each: not isinstance(each, _DEFINITIONS), body)
    imports = [each for each in top if isinstance(each, (ast.Import, ast.ImportFrom))]
    if not imports:
        raise Refused("the file has no import at its top")
    return imports[-1]


def _put(block: list[ast.stmt], added: ast.stmt, anchor: ast.stmt, *, after: bool = False) -> None:
    block.insert(block.index(anchor) + after, added)


# -- edits -----------------------------------------------------------------------------------------


INSERTS: dict[str, Callable[[Module, Edit], SourceChange]] = {
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
        unique = {edit_key(edit): edit for edit in edits}
        changes = list(_changes(module, list(unique.values())))
        splices = [splice for change in changes for splice in change.splices]
        for one, other in itertools.pairwise(sorted(splices)):
            if other.start < one.end or (one.start, one.end) == (other.start, other.end):
                raise Refused("the edit overlaps another edit of the same file")
    except Refused:
        _untouched.clear()
        _untouched[raw] = module
        raise
    result = module.source.splice(splices)
    for change in changes:
        change.rewrite()
    if not same(parse(result), module.tree):
        raise Refused("the changed text would not mean exactly the intended change")
    return result


_untouched: dict[bytes, Module] = {}
"""The file of the last refusal: its tree is as it was parsed, and the next edit is of it mostly."""


@dataclass
class _NodeChanges:
    """What all edits want, by the node they change. Contradicting an earlier one is refused."""

    keywords: dict[ast.Call, KeywordEdits] = field(default_factory=dict)
    doomed: dict[ast.stmt, None] = field(default_factory=dict)
    detached: dict[ast.expr, None] = field(default_factory=dict)
    renamed: dict[ast.Call, Edit] = field(default_factory=dict)
    logged: dict[ast.Expr, int] = field(default_factory=dict)
    """Statements that log, and on every how many steps they shall."""
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
        elif edit.action == "throttle":
            statement, every = logging_statement(module, edit), every_of(edit)
            if self.logged.setdefault(statement, every) != every:
                raise Refused("an earlier edit wants another condition for the log")
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


def _changes(module: Module, edits: Sequence[Edit]) -> Iterator[SourceChange]:
    wanted = _NodeChanges()
    for edit in edits:
        module.expect_line(edit)
        wanted.add(module, edit)
    for call, keywords in wanted.keywords.items():
        yield change_keywords(module, call, keywords)
    for value in wanted.detached:
        yield detach(module, value)
    for call, edit in wanted.renamed.items():
        if edit.action == "modernize_amp":
            yield modernize_amp(module, call, edit)
        elif edit.action == "make_on_device":
            yield make_on_device(module, call)
        else:
            yield rename_call(module, call, edit)
    for constant, text in wanted.constants.items():
        splice = Splice(*module.source.span(constant), text)
        yield SourceChange((splice,), partial(module.replace, constant, parse_expression(text)))
    for edit in wanted.inserted:
        yield INSERTS[edit.action](module, edit)
    # Here, because it puts statements a level deeper, where the changes above would not look for
    # them.
    yield from throttle(module, wanted.logged)
    yield from drop_statements(module, wanted.doomed)


# -- constants -------------------------------------------------------------------------------------
# Changes the number or flag that a line gives to a name: ``num_workers = 0``, ``pin_memory: bool =
# False``.


_PLAIN = re.compile(r"\d{1,18}|True|False")


def constant_on_line(module: Module, edit: Edit) -> ast.Constant:
    """The literal that the edit's line gives to the name ``keyword``. Raises :class:`Refused`."""
    if not _PLAIN.fullmatch(edit.value):
        raise Refused(f"`{edit.value}` is not a whole number, True or False")
    found = [
        node.value
        for node in module.on(edit.site.line, ast.stmt)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and edit.keyword in map(name_of, targets_of(node))
    ]
    if (
        len(found) != 1
        or not isinstance(found[0], ast.Constant)
        or not isinstance(found[0].value, int)
    ):
        raise Refused(f"line {edit.site.line} does not give `{edit.keyword}` a number or flag")
    if repr(found[0].value) == edit.value:
        raise Refused(f"`{edit.keyword}` is already {edit.value}")
    return found[0]


# -- amp api ---------------------------------------------------------------------------------------
# Replaces the deprecated classes of ``torch.cuda.amp`` by those of ``torch.amp``, which take the
# device as first argument.


_NEW = {"autocast": "torch.amp.autocast", "GradScaler": "torch.amp.GradScaler"}
_DEVICE = "cuda"


def modernize_amp(module: Module, call: ast.Call, edit: Edit) -> SourceChange:
    """``torch.cuda.amp.autocast(...)`` to ``torch.amp.autocast("cuda", ...)``, or Refused."""
    new = _NEW.get(edit.call)
    if new is None:
        raise Refused(f"`{edit.call}` has no successor that is known")
    if ast.unparse(call.func) == new:
        raise Refused(f"the call is already `{new}`")
    if edit.call == "autocast" and call.args:
        raise Refused("its arguments are not named, and their order has changed")
    expect_torch(module)
    opened = read_arguments(module.source, call).opened
    line_ends = module.source.text[opened:].startswith("\n")
    comma = "" if not (call.args or call.keywords) else "," if line_ends else ", "
    splices = (
        Splice(*module.source.span(call.func), new),
        Splice(opened, opened, f'"{_DEVICE}"{comma}'),
    )
    return SourceChange(splices, partial(_rewrite, call, parse_expression(new)))


def _rewrite(call: ast.Call, callee: ast.expr) -> None:
    call.func = callee
    call.args.insert(0, ast.Constant(value=_DEVICE))


# -- on device -------------------------------------------------------------------------------------
# Makes a tensor where it is used: ``torch.zeros(n).to(device)`` becomes ``torch.zeros(n,
# device=device)``, also below what keeps its place and values: ``torch.tril(torch.ones(n, n))``.
# What has a name in between is made there and moved no more, and the line that moves it stays.


def make_on_device(module: Module, move: ast.Call) -> SourceChange:
    """The change that gives the device to what makes the tensor. Raises :class:`Refused`."""
    made = _factory_call(module, move)
    if module.quoted_in(move) is not None:
        raise Refused("the call is inside an f-string")
    given = change_keywords(module, made, KeywordEdits(sets={"device": _device(module, move)}))
    receiver = move.func.value if isinstance(move.func, ast.Attribute) else move
    if isinstance(receiver, ast.Name):
        return given  # the move finds it there
    cut = Splice(module.source.span(receiver)[1], module.source.span(move)[1])
    gone = module.source.text[cut.start : cut.end]
    if not gone.lstrip(" \t\n\\").startswith(".") or "#" in gone:
        raise Refused("there is more than a dot between the two calls")

    def rewrite() -> None:
        given.rewrite()
        module.replace(move, receiver)

    return SourceChange((*given.splices, cut), rewrite)


def _factory_call(module: Module, move: ast.Call) -> ast.Call:
    """The call of a factory of torch that makes what is moved."""
    made = made_for(move, module.parents) if name_of(move.func) in ("to", "cuda") else None
    if made is None or name_of(made.func) not in FACTORIES:
        raise Refused("the moved tensor is not created by a function of torch that takes a device")
    if any(item.arg in ("device", "pin_memory", "out", "requires_grad") for item in made.keywords):
        raise Refused("the call has arguments that another device may not support")
    return made


def _device(module: Module, move: ast.Call) -> str:
    """The device that the move names, as written."""
    named = [*move.args, *(item.value for item in move.keywords if item.arg == "device")]
    if any(item.arg not in {"device", "non_blocking"} for item in move.keywords) or len(named) > 1:
        raise Refused("the move does more than name a device")
    if not named:
        if isinstance(move.func, ast.Attribute) and move.func.attr == "cuda":
            return '"cuda"'
        raise Refused("the move names no device")
    if not _is_device(named[0]):
        raise Refused(f"`{module.source.code(named[0])}` may be something else than a device")
    return module.source.code(named[0])


def _is_device(node: ast.expr) -> bool:
    """True for names that end in ``device``, ``"cuda:0"`` and ``torch.device(...)``; no dtypes."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.partition(":")[0] in ("cuda", "cpu")
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return str(name).lower().endswith("device")


# -- another call ----------------------------------------------------------------------------------


def rename_call(module: Module, call: ast.Call, edit: Edit) -> SourceChange:
    """``a.b.old(...)`` to ``a.b.<value>``; a bare ``old(...)`` gets its module's prefix."""
    wanted = parse_expression(edit.value)
    node = wanted
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    name = node if isinstance(node, ast.Name) else None
    if name is None:
        raise Refused(f"`{edit.value}` does not start with a name")
    start, end = module.source.span(call)
    if isinstance(call.func, ast.Attribute):
        prefix: ast.expr | None = call.func.value
        start = module.source.span(call.func)[1] - len(call.func.attr)
        if module.source.text[start : start + len(call.func.attr)] != call.func.attr:
            raise Refused(f"`{edit.call}` is written in other characters than Python reads")
        text = edit.value.strip()
    else:
        dotted = _prefix_for(module, edit.call, name.id)
        prefix = parse_expression(dotted) if dotted else None
        text = f"{dotted}.{edit.value.strip()}" if dotted else edit.value.strip()
    new = _prefixed(wanted, name, prefix)
    if same(call, new):
        raise Refused(f"the call is already `{text}`")
    return SourceChange((Splice(start, end, text),), partial(module.replace, call, new))


def _prefixed(expression: ast.expr, name: ast.Name, prefix: ast.expr | None) -> ast.expr:
    if prefix is None:
        return expression
    reached = ast.Attribute(value=prefix, attr=name.id, ctx=ast.Load())
    if expression is name:
        return reached
    parents = parents_of(expression)
    setattr(parents[name], "func" if isinstance(parents[name], ast.Call) else "value", reached)
    return expression


def _prefix_for(module: Module, old: str, new: str) -> str:
    """What ``new`` needs before it to come from the module that ``old`` is of; may be empty."""
    homes = {home for home, *names in _from_modules(module.parents) if names == [old, old]}
    if len(homes) != 1:
        raise Refused(f"where `{old}` is imported from is not visible in the file")
    home = homes.pop()
    if (home, new, new) in _from_modules(module.tree.body):
        return ""
    prefix = next(_ways_to(module.tree, home), None)
    if prefix is None:
        raise Refused(
            f"the file lacks `import {home.partition('.')[0]}`, which `{home}.{new}` needs"
        )
    return prefix


def _from_modules(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str, str]]:
    """(module, name there, name here) of all that is imported from modules."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                yield str(node.module), item.name, item.asname or item.name


def _ways_to(tree: ast.Module, home: str) -> Iterator[str]:
    """Dotted names by which imports at the top of the file reach the module ``home``."""
    parent, _, leaf = home.rpartition(".")
    for node in tree.body:
        for item in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []:
            if (
                isinstance(node, ast.Import)
                and item.asname is None
                and item.name.partition(".")[0] == home.partition(".")[0]
            ):
                yield home
            elif isinstance(node, ast.Import) and (home + ".").startswith(item.name + "."):
                yield f"{item.asname}{home[len(item.name) :]}"
            elif (
                isinstance(node, ast.ImportFrom)
                and not node.level
                and node.module == parent
                and item.name == leaf
            ):
                yield item.asname or item.name


# -- keywords --------------------------------------------------------------------------------------
# Sets and drops keywords of one call, in the style that the call is written in.


@dataclass
class KeywordEdits:
    """What all edits together want of the keywords of one call."""

    sets: dict[str, str] = field(default_factory=dict)
    drops: set[str] = field(default_factory=set)

    def add(self, edit: Edit) -> None:
        """Take one more edit. Raises :class:`Refused` if it contradicts an earlier one."""
        name, value = edit.keyword, edit.value.strip()
        dropping = edit.action == "drop_keyword"
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Refused(f"`{name}` is not the name of a keyword")
        if name in (self.sets if dropping else self.drops) or (
            not dropping and self.sets.get(name, value) != value
        ):
            raise Refused(f"an earlier edit of this call wants something else of `{name}`")
        if dropping:
            self.drops.add(name)
        else:
            self.sets[name] = value


def change_keywords(module: Module, call: ast.Call, edits: KeywordEdits) -> SourceChange:
    """The one change that makes all keyword edits of a call. Raises :class:`Refused`."""
    present = {item.arg: item for item in call.keywords}
    if None in present and edits.sets:
        raise Refused("the call takes **keywords that its source does not show")
    values = {name: parse_expression(text) for name, text in edits.sets.items()}
    _refuse_if_done(present, values, edits)
    added = {name: text for name, text in edits.sets.items() if name not in present}
    if added and edits.drops:
        raise Refused("keywords of one call are either added or dropped by one patch, not both")
    arguments = read_arguments(module.source, call)
    splices = [
        *(
            Splice(*module.source.span(present[name].value), edits.sets[name])
            for name in edits.sets.keys() - added.keys()
        ),
        *_add(module.source, arguments, [f"{name}={text}" for name, text in added.items()]),
        *_drop(module.source, arguments, edits.drops),
    ]
    return SourceChange(tuple(splices), partial(_rewrite_keywords, call, values, edits.drops))


def _refuse_if_done(
    present: Mapping[str | None, ast.keyword], values: Mapping[str, ast.expr], edits: KeywordEdits
) -> None:
    for name, value in values.items():
        if name in present and same(present[name].value, value):
            raise Refused(f"`{name}` is already {edits.sets[name]}")
        if name in present and not _is_plain_value(present[name].value):
            raise Refused(
                f"`{name}` is decided by `{ast.unparse(present[name].value)}`: change it where "
                "that is set"
            )
    for name in sorted(edits.drops):
        if name not in present:
            raise Refused(f"the call already has no `{name}`")


def _is_plain_value(value: ast.expr) -> bool:
    """True for what is written out in the call: a constant, some constants, ``torch.float16``."""
    while isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(map(_is_plain_value, value.elts))
    root = root_of(value)
    of_torch = (
        isinstance(value, ast.Attribute) and isinstance(root, ast.Name) and root.id == "torch"
    )
    return of_torch or isinstance(value, ast.Constant)


def _rewrite_keywords(call: ast.Call, values: Mapping[str, ast.expr], drops: set[str]) -> None:
    call.keywords = [item for item in call.keywords if item.arg not in drops]
    present = {item.arg: item for item in call.keywords}
    for name, value in values.items():
        if name in present:
            present[name].value = value
        else:
            call.keywords.append(ast.keyword(arg=name, value=value))


def _add(source: SourceText, arguments: Arguments, words: list[str]) -> Iterator[Splice]:
    """Behind the last argument: on its line, or on own lines where the last one has its own."""
    if not words:
        return
    if not arguments.slots:
        yield Splice(arguments.opened, arguments.opened, ", ".join(words))
        return
    last = arguments.slots[-1]
    if isinstance(last.node, ast.GeneratorExp) and source.span(last.node)[0] < last.start:
        raise Refused("a generator without parentheses of its own must stay the only argument")
    indent = source.before(last.start)
    own_line = not indent.strip()
    before = f"\n{indent}" if own_line else " "
    behind = last.end if last.after is None else last.after
    # A comment stays with the argument that it stands behind.
    at = source.line_end(behind) if own_line and source.rest_is_idle(behind) else behind
    if last.after is not None:
        yield Splice(at, at, "".join(f"{before}{word}," for word in words))
        return
    text = ",".join(f"{before}{word}" for word in words)
    if at == last.end:
        yield Splice(at, at, f",{text}")
    else:
        yield from (Splice(last.end, last.end, ","), Splice(at, at, text))


def _drop(source: SourceText, arguments: Arguments, drops: set[str]) -> Iterator[Splice]:
    """Cut runs of neighbouring arguments with their commas."""
    slots = arguments.slots
    doomed = [slot.keyword in drops for slot in slots]
    if doomed and all(doomed) and "#" not in source.text[arguments.opened : arguments.closed]:
        yield Splice(arguments.opened, arguments.closed)
        return
    for lost, numbers in itertools.groupby(range(len(slots)), key=doomed.__getitem__):
        if not lost:
            continue
        inside = list(numbers)
        first = inside[0]
        run = replace(slots[inside[-1]], start=slots[first].start)
        before = slots[first - 1] if first else None
        yield from (
            _drop_last(source, run, before)
            if run.after is None
            else [_drop_inner(source, run, run.after, before)]
        )


def _drop_inner(source: SourceText, run: Slot, after: int, before: Slot | None) -> Splice:
    """Cut a run that ends in a comma: its lines, or from the comma before it, or up to the next."""
    if _has_own_lines(source, run.start, after):
        return _lines(source, run.start, after)
    if (
        before is not None
        and before.after is not None
        and before.after >= source.line_start(run.start)
    ):
        return Splice(before.after, after)
    rest = source.text[after : source.line_end(after)]
    return Splice(run.start, after + len(rest) - len(rest.lstrip()))


def _drop_last(source: SourceText, run: Slot, before: Slot | None) -> Iterator[Splice]:
    """Cut a run that ends without a comma, and the comma before it."""
    own_lines = _has_own_lines(source, run.start, run.end)
    cut = _lines(source, run.start, run.end) if own_lines else Splice(run.start, run.end)
    if before is None or before.after is None:
        yield cut
    elif own_lines or "#" in source.text[before.end : run.start]:
        yield from (Splice(before.after - 1, before.after), cut)
    else:
        yield Splice(before.end, run.end)


def _has_own_lines(source: SourceText, start: int, end: int) -> bool:
    return not source.before(start).strip() and source.rest_is_idle(end)


def _lines(source: SourceText, start: int, end: int) -> Splice:
    return Splice(source.line_start(start), min(source.line_end(end) + 1, len(source.text)))


# -- arguments -------------------------------------------------------------------------------------
# Where each argument of one call is in the text: between the spans of their nodes stand brackets,
# commas and comments alone.

_NO_CODE = r"(?:[\s\\]|#[^\n]*+)*+"
_BEGINS = re.compile(rf"{_NO_CODE}(?:\){_NO_CODE})*\(")
_CLOSES = re.compile(rf"{_NO_CODE}\)")
_ENDS = re.compile(rf"{_NO_CODE},")
_SKIPPED = re.compile(_NO_CODE)


@dataclass(frozen=True)
class Slot:
    """One argument as written, with its parentheses. ``after`` is behind its comma, if any."""

    node: ast.expr | ast.keyword
    start: int
    end: int
    after: int | None

    @property
    def keyword(self) -> str | None:
        """Keyword name, None for a positional or starred argument."""
        return self.node.arg if isinstance(self.node, ast.keyword) else None


@dataclass(frozen=True)
class Arguments:
    """The inside of a call's parentheses, ``text[opened:closed]``, and its arguments."""

    opened: int
    closed: int
    slots: tuple[Slot, ...]


def read_arguments(source: SourceText, call: ast.Call) -> Arguments:
    """The arguments of a call. Raises :class:`Refused` if its text and its syntax do not agree."""
    text, closed = source.text, source.span(call)[1] - 1
    begin = _BEGINS.match(text, source.span(call.func)[1])
    if begin is None or text[closed] != ")":
        raise Refused("the arguments of the call cannot be read")
    nodes: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    slots, at = list[Slot](), begin.end()
    for node in sorted(nodes, key=source.span):
        start = _end_of(_SKIPPED, text, at)
        first, end = source.span(node)
        end = min(end, closed)  # a generator without parentheses of its own has those of the call
        for _ in range(re.sub(r"#[^\n]*", "", text[start:first]).count("(")):
            end = _end_of(_CLOSES, text, end)
        comma = _ENDS.match(text, end, closed)
        slots.append(Slot(node, start, end, comma.end() if comma else None))
        at = comma.end() if comma else end
    return Arguments(begin.end(), closed, tuple(slots))


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    if found is None:
        raise Refused("the arguments of the call cannot be read")
    return found.end()
