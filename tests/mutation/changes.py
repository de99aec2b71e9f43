"""Mutants of a file: one operator of cosmic-ray at one place, and which of them nothing can tell
from the file.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent.parent

SWAPS = (
    "Lt_LtE",
    "LtE_Lt",
    "Gt_GtE",
    "GtE_Gt",
    "Lt_Gt",
    "Gt_Lt",
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
)
SIGNS = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul", "Mod_Add")
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{each}" for each in SWAPS),
    *(f"core/ReplaceBinaryOperator_{each}" for each in SIGNS),
    "core/NumberReplacer",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/AddNot",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceUnaryOperator_Delete_USub",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
)
"""Of cosmic-ray's: one neighbour of each comparison and sign, where all pairs would be five in six
of the mutants.
"""

EQUIVALENT = {
    "annotation": "types are not evaluated (from __future__ import annotations)",
    "type checking": "the body of `if TYPE_CHECKING:` never runs",
    "decorator": "what decorators are given: frozen, slots, order, the size of a cache",
    "slots": "`__slots__` saves memory, nothing else",
    "signature": "the `*` before parameters that are named when given is no operator",
    "strict": "`zip(strict=...)`: the lengths are equal, or it is a fault of ours",
    "assert": "asserts tell the type checker what it cannot see",
    "repr": "`__repr__` is for debuggers",
    "error text": "what `raise` and `warnings.warn` are given: words for people",
    "same code": "the mutant compiles to the same bytecode (constants folded)",
    "no code": "the mutant does not compile: no change of the program at all",
}
"""Rules by which mutants are left out, whatever the tests say."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file; ``where`` is its line and column."""

    file: Path
    operator: str
    occurrence: int
    where: tuple[int, int]

    @property
    def text(self) -> str:
        """The file with the change."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        return str(
            mutate_code(self.file.read_text(), get_operator(self.operator)(), self.occurrence)
        )

    @property
    def name(self) -> str:
        """Place and operator."""
        line, column = self.where
        return f"{self.file.relative_to(ROOT)}:{line}:{column}  {self.operator[5:]}"

    def __str__(self) -> str:
        lines = difflib.unified_diff(
            self.file.read_text().splitlines(), self.text.splitlines(), n=0, lineterm=""
        )
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        return "\n".join([self.name, *(f"    {line[0]} {line[1:].strip()}" for line in changed)])


def modules() -> list[Path]:
    """What is mutated."""
    found = [*(ROOT / "rules").glob("*.py"), *(ROOT / "auditor/evidence").rglob("*.py")]
    return sorted(path for path in found if path.name != "__init__.py")


def mutants_of(path: Path) -> Iterator[tuple[Mutant, str]]:
    """All mutants of a file, each with the rule of :data:`EQUIVALENT` that leaves it out, or "".

    The last two rules need the mutant's text: see :func:`without_effect`.
    """
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    text = path.read_text()
    nodes, idle = list(ast_nodes(get_ast(text))), list(idle_parts(ast.parse(text)))
    for name in OPERATORS:
        operator = get_operator(name)()
        places = [begin for node in nodes for begin, _ in operator.mutation_positions(node)]
        for occurrence, where in enumerate(places):
            why = next((rule for rule, begin, end in idle if begin <= where < end), "")
            yield Mutant(path, name, occurrence, where), why


def without_effect(original: str, changed: str) -> str:
    """The rule that leaves a mutant out for its text, or ""."""
    try:
        code = _code(changed)
    except SyntaxError:
        return "no code"
    return "same code" if code == _code(original) else ""


@lru_cache(maxsize=8)
def _code(text: str) -> CodeType:
    return _placeless(compile(text, "module", "exec", dont_inherit=True))


def _placeless(code: CodeType) -> CodeType:
    """The same without lines and columns."""
    inner = (_placeless(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=tuple(inner), co_firstlineno=1, co_linetable=b"")


def idle_parts(tree: ast.Module) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Stretches of source whose mutants a rule leaves out: the rule, first and last place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from _marker(node)
        for rule, part in _idle(node):
            if part is not None:
                end = (part.end_lineno or part.lineno, part.end_col_offset or 0)
                yield rule, (part.lineno, part.col_offset), end


def _marker(
    function: ast.FunctionDef,
) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """From the last parameter that may be given by position to the first that may not."""
    given = function.args
    if given.kwonlyargs and given.vararg is None:
        before = [*given.posonlyargs, *given.args, *given.defaults]
        ends = [(each.end_lineno or 0, each.end_col_offset or 0) for each in before]
        first = given.kwonlyargs[0]
        begin = max([(function.lineno, function.col_offset), *ends])
        yield "signature", begin, (first.lineno, first.col_offset)


def _idle(node: ast.AST) -> list[tuple[str, ast.expr | ast.stmt | None]]:
    match node:
        case ast.AnnAssign() | ast.arg():
            return [("annotation", node.annotation)]
        case ast.FunctionDef():
            repr_ = [("repr", node)] if node.name == "__repr__" else []
            return [
                ("annotation", node.returns),
                *(("decorator", each) for each in node.decorator_list),
                *repr_,
            ]
        case ast.ClassDef():
            return [("decorator", each) for each in node.decorator_list]
        case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
            return [("type checking", node)]
        case ast.Assign() if ast.unparse(node.targets[0]) == "__slots__":
            return [("slots", node)]
        case ast.Assert():
            return [("assert", node)]
        case ast.Raise():
            return [("error text", node.exc if isinstance(node.exc, ast.Call) else None)]
        case ast.Call() if ast.unparse(node.func) == "warnings.warn":
            return [("error text", node)]
        case ast.Call():
            return [("strict", word.value) for word in node.keywords if word.arg == "strict"]
    return []
