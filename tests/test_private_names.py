"""Private names of torch stand in one place, where each has what happens without it. ruff (SLF001)
finds a private attribute elsewhere; what it does not look at, imports and strings, is found here.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parent.parent
PLACE = "auditor/capture/instruments/torch_private/"
FILES = [
    path
    for room in ("auditor", "rules", "reports")
    for path in sorted((ROOT / room).rglob("*.py"))
    if PLACE not in str(path)
]
PRIVATE = re.compile(r"(?:^|\.)_(?!_)\w+")
ASKS = {"getattr", "hasattr", "setattr", "delattr", "import_module"}
OTHERS = {"_target", "_fields", "_inner", "_fused_rms_norm_backward"}
"""Of multiprocessing, of tuples with names, our own; and an operator that is asked for."""


def uses(tree):
    """Private names of torch that a source imports, or names in a string to get them."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ASKS:
            words = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from (word for word in words if isinstance(word, str) and PRIVATE.search(word))
        yield from (name for name in names if re.match("torch\\b", name) and PRIVATE.search(name))


@for_each(FILES, lambda path: str(path.relative_to(ROOT)))
def test_private_names_of_torch_are_asked_for_in_one_place(path):
    assert not set(uses(tree_of(path))) - OTHERS


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._C import Graph", "torch._C.Graph"),
        ("from torch.utils import _pytree as pytree", "torch.utils._pytree"),
        ("def f(x): return getattr(x, '_cdata', 0)", "_cdata"),
        ("importlib.import_module('torch._inductor')", "torch._inductor"),
    ],
)
def test_a_use_is_found(source, name):
    assert name in set(uses(ast.parse(source)))


@for_each(sorted((ROOT / PLACE).glob("*.py")), lambda path: path.name)
def test_each_accessor_says_what_happens_without_the_name(path):
    """Each function, and each name that is looked up, has a docstring with the words."""
    body = tree_of(path).body
    if path.name in ("__init__.py", "look_up.py"):
        return
    silent = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name, said = node.name, ast.get_docstring(node) or ""
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            name = target.id if isinstance(target, ast.Name) else ""
            value = after.value if isinstance(after, ast.Expr) else None
            said = str(value.value) if isinstance(value, ast.Constant) else ""
        else:
            continue
        if (
            not name.startswith("_")
            and name not in NO_NAMES
            and not ast.unparse(node).count("= for_rehearsals(")
            and not re.search(r"[Ww]ithout|Where they do not", said)
        ):
            silent.append(name)
    assert not silent


NO_NAMES = set("Tensor NoDispatchMode ANY_GLOBAL_HOOK FOREACH_DEFAULT CLIP_BY_NORM".split())
"""What takes the place of others there, and how functions are called whose accessor stands
beside.
"""
