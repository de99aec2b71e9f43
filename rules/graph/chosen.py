"""Which lines choose the parameters that an optimizer is given, and may leave some out."""

import ast
from collections.abc import Iterable, Iterator

from auditor.evidence.source.files import Source, name_of, the_only, unparsed
from auditor.model import Site
from auditor.syntax.index import Function, Index, called_in, grouped, names_in, nodes_in, targets_of

OPTIMIZERS = "Adadelta Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop SGD".split()
GROWING = frozenset(["append", "extend", "add"])
ALL = frozenset(["parameters", "named_parameters", "modules", "named_modules", "children"])
"""Calls that give all parameters, or what has them."""


def choosing(source: Source, optimizer: Site) -> list[Site]:
    """Comprehensions, calls of ``filter`` and conditions of loops that choose what the optimizer of a
    line is given, in the function that makes it or one that this one calls; in the order of lines.
    """
    index = source.index(optimizer.file)
    scope = index.scope_at(optimizer.line)
    calls = [call for call in index.of(ast.Call) if index.scope_of(call) is scope]
    given = _arguments(
        call
        for call in calls
        if name_of(call.func) == "add_param_group"
        or (call.lineno == optimizer.line and name_of(call.func) in OPTIMIZERS)
    )
    if scope is None or not given:
        return []
    flow = _Flow(index, scope, given)
    lines = {(optimizer.file, node.lineno): node for node in flow.chooses()}
    for name in called_in(flow.parts) - ALL:
        made = the_only(each for each in source.functions if each[1].name == name)
        if made is not None:
            returned = [each.value for each in nodes_in(made[1], ast.Return) if each.value]
            inner = _Flow(source.index(made[0]), made[1], returned)
            lines |= {(made[0], node.lineno): node for node in inner.chooses()}
    return [source.site_of(file, lines[file, line]) for file, line in sorted(lines)]


def _arguments(calls: Iterable[ast.Call]) -> list[ast.expr]:
    return [
        each for call in calls for each in (*call.args, *(named.value for named in call.keywords))
    ]


class _Flow:
    """What leads to some expressions of a function, by the names in them."""

    def __init__(
        self, index: Index, scope: Function | ast.Module, given: Iterable[ast.expr]
    ) -> None:
        self._index = index
        self._scope = scope
        self.parts: list[ast.expr] = []
        """Expressions that lead there."""
        self._names: set[str] = set()
        filled, waiting = grouped(self._filled()), list(given)
        while waiting:
            part = waiting.pop()
            self.parts.append(part)
            for name in names_in(part, ast.Load) - self._names:
                self._names.add(name)
                waiting += filled.get(name, ())
        self._all = {
            name for name, parts in filled.items() if any(called_in(each) & ALL for each in parts)
        }

    def _filled(self) -> Iterator[tuple[str, ast.expr]]:
        """Names of the function, each with what it is given."""
        for node in nodes_in(self._scope, ast.stmt, ast.Call):
            if self._index.scope_of(node) is not self._scope:
                continue
            value = node.iter if isinstance(node, ast.For) else getattr(node, "value", None)
            if isinstance(node, ast.For | ast.Assign | ast.AugAssign) and value is not None:
                yield from ((name, value) for name in names_in(targets_of(node), ast.Store))
            elif isinstance(node, ast.Call) and _grows(node):
                yield from ((name, each) for name in _owner(node) for each in node.args)

    def chooses(self) -> Iterator[ast.expr | ast.stmt]:
        """What leaves some of all parameters out."""
        for part in self.parts:
            for node in nodes_in(part, ast.ListComp, ast.GeneratorExp, ast.SetComp):
                tests = [test for each in node.generators for test in each.ifs]
                if self._has_all(node.generators[0].iter) and any(map(_picks, tests)):
                    yield node
            for call in nodes_in(part, ast.Call):
                if name_of(call.func) == "filter" and self._has_all(*call.args[1:]):
                    yield call
        for call in nodes_in(self._scope, ast.Call):
            loop = self._index.nearest(call, ast.For)
            if loop is not None and _grows(call) and _owner(call) & self._names:
                yield from self._conditions(call, loop) if self._has_all(loop.iter) else ()

    def _has_all(self, *given: ast.expr) -> bool:
        return any(called_in(each) & ALL or names_in(each) & self._all for each in given)

    def _conditions(self, call: ast.Call, loop: ast.For) -> Iterator[ast.stmt]:
        """Those of a loop under which what it goes through is not added."""
        for node in nodes_in(loop.body, ast.If):
            if any(isinstance(each, ast.Continue) for each in node.body) and _picks(node.test):
                yield node
            elif self._index.holds(node, call) and _picks(node.test):
                last = node
                while len(last.orelse) == 1 and isinstance(last.orelse[0], ast.If):
                    last = last.orelse[0]
                if not any(map(_grows, nodes_in(last.orelse, ast.Call))):
                    yield last


def _grows(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in GROWING


def _owner(call: ast.Call) -> set[str]:
    return names_in(call.func, ast.Load)


def _picks(test: ast.expr) -> bool:
    """It asks for more than whether a parameter is trained at all."""
    return not unparsed(test).endswith(".requires_grad")
