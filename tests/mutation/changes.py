"""Mutants of a file: one operator of cosmic-ray at one place, and which of them nothing can tell
from the file.
"""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

SWAPS = "Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_Gt Gt_Lt Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is".split()
SIGNS = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Pow_Mul Mod_Add".split()
OTHERS = (
    "NumberReplacer ReplaceTrueWithFalse ReplaceFalseWithTrue ReplaceAndWithOr ReplaceOrWithAnd"
    " AddNot ReplaceUnaryOperator_Delete_Not ReplaceUnaryOperator_Delete_USub"
    " ReplaceBreakWithContinue ReplaceContinueWithBreak"
)
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{each}" for each in SWAPS),
    *(f"core/ReplaceBinaryOperator_{each}" for each in SIGNS),
    *(f"core/{each}" for each in OTHERS.split()),
)
"""Of cosmic-ray's: one neighbour of each comparison and sign, where all pairs would be five in six
of the mutants.
"""


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

    def __str__(self) -> str:
        line, column = self.where
        name = f"{self.file.relative_to(ROOT)}:{line}:{column}  {self.operator[5:]}"
        lines = difflib.unified_diff(
            self.file.read_text().splitlines(), self.text.splitlines(), n=0, lineterm=""
        )
        changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        return "\n".join([name, *(f"    {line[0]} {line[1:].strip()}" for line in changed)])


def modules() -> list[Path]:
    """What is mutated: not the probes, which start in processes."""
    found = [*(ROOT / "rules").rglob("*.py"), *(ROOT / "auditor/evidence").rglob("*.py")]
    return sorted(one for one in found if one.name != "__init__.py" and "probes" not in one.parts)


def mutants_of(path: Path) -> Iterator[tuple[Mutant, str]]:
    """All mutants of a file, each with the rule that leaves it out (docs/log/mutants.md), or ""."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    text = path.read_text()
    nodes, idle = list(ast_nodes(get_ast(text))), list(idle_parts(ast.parse(text)))
    for name in OPERATORS:
        operator, occurrence = get_operator(name)(), -1
        for node in nodes:
            for where, _ in operator.mutation_positions(node):
                occurrence += 1
                why = next((rule for rule, begin, end in idle if begin <= where < end), "")
                if name.startswith("core/ReplaceBinary") and node.parent.type == "parameters":
                    why = "signature"
                yield Mutant(path, name, occurrence, where), why


def idle_parts(tree: ast.Module) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    """Stretches of source whose mutants a rule leaves out: the rule, first and last place."""
    for node in ast.walk(tree):
        for rule, part in _idle(node):
            if part is not None:
                end = (part.end_lineno or part.lineno, part.end_col_offset or 0)
                yield rule, (part.lineno, part.col_offset), end


def _idle(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt | None]]:
    match node:
        case ast.AnnAssign() | ast.arg():
            yield "annotation", node.annotation
        case ast.FunctionDef() | ast.ClassDef():
            yield from (("decorator", each) for each in node.decorator_list)
            yield "annotation", getattr(node, "returns", None)
            yield "repr", node if node.name == "__repr__" else None  # type: ignore[misc]
        case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
            yield "type checking", node
        case ast.Assert():
            yield "assert", node
        case ast.Raise(exc=ast.Call()):
            yield "error text", node.exc
        case ast.Call():
            yield "error text", node if ast.unparse(node.func) == "warnings.warn" else None
            yield from (("strict", word.value) for word in node.keywords if word.arg == "strict")
