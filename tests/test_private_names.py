"""Private names of torch stand in one place, where each has what happens without it; nothing else
uses one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.utils.data import DataLoader

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parent.parent
PLACE = "auditor/capture/instruments/torch_private/"
FILES = [
    path for room in ("auditor", "rules", "reports") for path in sorted((ROOT / room).rglob("*.py"))
]
PRIVATE = re.compile(r"_(?!_)\w+")

OF_PYTHON = {
    "_getframe",
    "_current_frames",
    "_exit",
    "_replace",
    "_fields",
    "_run_exitfuncs",
    "_target",
}
"""Of sys, os, tuples with names, atexit and multiprocessing."""

OPERATORS = """
    _unique2 _unique _linalg_check_errors _to_sparse _coalesce _nested_tensor_from_mask_left_aligned _nested_tensor_from_mask
    _linalg_eigh _linalg_svd _sparse_mm _sparse_addmm
    _assert_scalar _local_scalar_dense _unsafe_index _index_put_impl_ _unsafe_index_put _foreach_copy_ _pack_padded_sequence
"""
REPLACED = """
    _group_tensors_by_device_and_dtype _get_accelerator _accelerator_getAccelerator _accelerator_exchangeDevice
    _accelerator_maybeExchangeDevice _lazy_init _exchange_device _maybe_exchange_device
"""
PROBES, SHADOW = "auditor/capture/probes", "auditor/capture/shadow"

WORDS = {
    f"{PROBES}/operator_stream.py": (
        "_dynamo torch._ops.OpOverload._schema",
        "names of files, to know torch's own frames in a stack; named in an error",
    ),
    f"{PROBES}/waste/flow_watch.py": (
        "_dynamo",
        "the name of a file, to know torch's own frames in a stack",
    ),
    f"{PROBES}/sync/reads.py": (
        "_local_scalar_dense _unique2 _index_put_impl_ _linalg_check_errors",
        "operators: _kernel leaves out",
    ),
    f"{PROBES}/sync/course.py": (
        "_local_scalar_dense _to_copy _pin_memory _unique _unique2",
        "operators by name, to know what was called",
    ),
    f"{SHADOW}/operators.py": (OPERATORS, "operators by name, to know what was called"),
    f"{SHADOW}/attention.py": (
        "_scaled_dot_product_attention_math _scaled_dot_product_efficient_attention",
        "operators: overload() gives None where torch lacks them, and attention is left alone",
    ),
    f"{SHADOW}/paths.py": (
        "_linalg_det",
        "an operator: overload() gives None where torch lacks it",
    ),
    f"{SHADOW}/functions.py": ("_fused_rms_norm_backward", "an operator, asked for by hasattr"),
    f"{SHADOW}/workspaces.py": (
        "_addmm_activation _int_mm _scaled_mm",
        "operators by name, to know what was called",
    ),
    f"{SHADOW}/halves.py": (
        "_is_mkldnn_fp16_supported _is_mkldnn_bf16_supported",
        "operators: slow without",
    ),
    f"{SHADOW}/facade.py": (REPLACED, "replaced where torch has them, by hasattr and _put"),
    f"{SHADOW}/limits.py": (
        "_sleep _compile_kernel _dump_snapshot _record_memory_history _snapshot",
        "refused where torch has them, by getattr and hasattr",
    ),
    f"{SHADOW}/memory.py": (
        "_dump_snapshot _record_memory_history _snapshot",
        "as limits.py, which replaces them",
    ),
    f"{SHADOW}/numbered.py": ("_parse_to", "where cuda.parse_to was found"),
    f"{SHADOW}/one_rank.py": (
        "_all_gather_base _reduce_scatter_base _set_static_graph",
        (
            "collectives are replaced where torch has them; the method where set_static_graph was "
            "found"
        ),
    ),
    f"{SHADOW}/device.py": (
        "torch._ops.OpOverload._schema torch._dynamo torch._decomp.decompositions_for_jvp",
        "named in an error; modules that are imported first where there are any",
    ),
    f"{PROBES}/dist/batch_digests.py": (
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        "named in an error",
    ),
    f"{PROBES}/data/dataloader.py": (
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        "named in an error",
    ),
    "auditor/extensions/checkpoints/standins.py": (
        "",
        "a name in checkpoints, for which a stand-in is made: never imported",
    ),
}
"""File -> private names of torch that stand in it as strings, and why no call hangs on them. None
named: any.
"""


def of_torch() -> set[str]:
    """Private names that objects of torch have which programs hold."""
    loss = torch.ones(1, requires_grad=True).sum()
    objects = (
        *(
            torch,
            torch._C,
            torch._C._nn,
            torch.cuda,
            torch.cuda.memory,
            torch.overrides,
            torch.serialization,
            torch._utils,
        ),
        *(torch.distributed.distributed_c10d, optimizer, clip_grad, torch.nn.modules.module),
        *(
            loss,
            loss.grad_fn,
            loss.untyped_storage(),
            torch.nn.Linear(1, 1),
            torch.optim.SGD([loss.detach()], 0.1),
        ),
        *(
            torch.autocast("cpu"),
            torch.amp.GradScaler("cpu"),
            iter(DataLoader([1])),
            torch.ops.aten.add.Tensor,
        ),
        *(
            torch.library.Library("auditor_names", "FRAGMENT"),
            torch.autograd.profiler.profile(),
            torch.autograd.forward_ad,
        ),
    )
    return {name for each in objects for name in dir(each) if PRIVATE.fullmatch(name)}


OF_TORCH = of_torch()


def own_names() -> set[str]:
    """Private names that our own source makes."""
    found: set[str] = set()
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return found


OWN = own_names()


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Full name of everything of torch that a file imports, and what the file calls it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            pairs = [
                (alias.name, alias.asname or alias.name.partition(".")[0]) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            pairs = [
                (f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names
            ]
        else:
            continue
        yield from (pair for pair in pairs if pair[0].partition(".")[0] == "torch")


def root_of(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def uses(tree: ast.AST) -> Iterator[str]:
    """Private names of torch that a source imports, asks objects for, or names in a string."""
    names = list(imported(tree))
    yield from (
        full for full, _ in names if any(PRIVATE.fullmatch(part) for part in full.split("."))
    )
    roots = {short for _, short in names}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and PRIVATE.fullmatch(node.attr)
            and node.attr not in OF_PYTHON
        ):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if (
                root_of(node) in roots
                or node.attr not in OWN
                or (node.attr in OF_TORCH and not own)
            ):
                yield node.attr
        yield from filter(names_a_private, words_of(node))


def words_of(node: ast.AST) -> list[str]:
    """The string that stands there, or the words of one that is split."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    split = isinstance(node, ast.Attribute) and node.attr == "split"
    if split and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value.split()
    return []


def names_a_private(text: str) -> bool:
    parts = text.split(".")
    if not all(part.isidentifier() for part in parts):
        return False
    return (
        text in OF_TORCH
        if len(parts) == 1
        else parts[0] == "torch" and any(PRIVATE.fullmatch(part) for part in parts)
    )


@for_each(FILES, lambda path: str(path.relative_to(ROOT)))
def test_private_names_of_torch_are_used_in_one_place(path: Path) -> None:
    file = str(path.relative_to(ROOT))
    if file.startswith(PLACE):
        return
    words, _ = WORDS.get(file, (None, ""))
    found = set(uses(tree_of(path)))
    assert words == "" or not found - set((words or "").split())


@for_each([file for file, (words, _) in WORDS.items() if words])
def test_no_exception_outlives_its_use(file: str) -> None:
    tree = tree_of(ROOT / file)
    constants = {word for node in ast.walk(tree) for word in words_of(node)}
    assert set(WORDS[file][0].split()) <= constants


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch._C import Graph", "torch._C.Graph"),
        (
            "from torch.utils.data.dataloader import _BaseDataLoaderIter",
            "torch.utils.data.dataloader._BaseDataLoaderIter",
        ),
        ("from torch.utils import _pytree as pytree", "torch.utils._pytree"),
        ("import torch\ntorch.cuda.memory._snapshot()", "_snapshot"),
        ("import torch\ntorch.ones(1)._future_name()", "_future_name"),
        ("def f(tensor): return tensor._version", "_version"),
        ("def f(loader): return loader._iterator", "_iterator"),
        ("class M(Mode):\n    def f(self): return self._never_ours", "_never_ours"),
        ("def f(x): return getattr(x, '_cdata', 0)", "_cdata"),
        ("x = 'torch._C._autograd'", "torch._C._autograd"),
        ("x = frozenset('torch._C.a cat'.split())", "torch._C.a"),
    ],
)
def test_a_use_is_found(source: str, name: str) -> None:
    assert name in set(uses(ast.parse(source)))


def test_what_is_our_own_or_pythons_is_none() -> None:
    source = (
        "import sys\nimport torch\nclass A:\n    def f(self): self._patches.undo(); "
        "sys._getframe(1); torch.ones(1).sum()\n"
    )
    assert not set(uses(ast.parse(source)))


@for_each(sorted((ROOT / PLACE).glob("*.py")), lambda path: path.name)
def test_each_accessor_says_what_happens_without_the_name(path: Path) -> None:
    """Each public name of the package that is looked up, and each function, has a docstring with
    the words.
    """
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
            and not re.search(r"[Ww]ithout|Where they do not", said)
        ):
            silent.append(name)
    assert not silent


NO_NAMES = {
    "Tensor",
    "NoDispatchMode",
    "REHEARSAL_NEEDS",
    "ANY_GLOBAL_HOOK",
    "FOREACH_DEFAULT",
    "CLIP_BY_NORM",
}
"""What takes the place of others there, and how functions are called whose accessor stands
beside.
"""
