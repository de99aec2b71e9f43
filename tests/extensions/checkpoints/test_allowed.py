"""The names that are allowed: torch's own list as the installed torch has it, and nothing that
could be called for harm.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import _weights_only_unpickler as unpickler

from auditor.evidence import pickled_names


def test_the_list_is_torchs_own():
    listed = getattr(unpickler, "_get_allowed_globals", None)
    if listed is None:
        pytest.skip("this torch keeps its list elsewhere")
    torchs = set(listed())
    assert torchs <= pickled_names.TORCH, (
        f"torch admits more: {sorted(torchs - pickled_names.TORCH)}"
    )
    newer = {
        name
        for name in pickled_names.TORCH - torchs
        if not name.removeprefix("torch.").startswith(("int", "uint", "float", "bits"))
    }
    assert not newer, f"torch does not admit {sorted(newer)}"


def test_what_torch_adds_when_its_packages_are_imported():
    import torch._dynamo
    import torch.distributed.tensor
    import torch.nested

    added = [
        each[1] if isinstance(each, tuple) else f"{each.__module__}.{each.__qualname__}"
        for each in torch.serialization.get_safe_globals()
    ]
    missing = {
        name for name in added if name.startswith("torch.")
    } - pickled_names.TORCH_AFTER_IMPORT
    assert not missing


@pytest.mark.parametrize("name", sorted(pickled_names.KNOWN))
def test_a_known_name_is_a_class_or_a_function_that_makes_data(name):
    assert len(pickled_names.KNOWN[name]) > 10
    module, _, attribute = name.rpartition(".")
    assert module.partition(".")[0] in {
        *(
            "accelerate",
            "argparse",
            "builtins",
            "collections",
            "datetime",
            "decimal",
            "fractions",
            "lightning",
            "lightning_fabric",
        ),
        *(
            "numpy",
            "omegaconf",
            "pathlib",
            "pytorch_lightning",
            "torch",
            "transformers",
            "types",
            "typing",
            "uuid",
            "yacs",
        ),
    }
    assert attribute not in {
        "eval",
        "exec",
        "open",
        "compile",
        "getattr",
        "load",
        "loads",
        "partial",
    }


def test_names_are_compared_whole():
    for name in (
        "torch._utils._rebuild_x",
        "torch._utils._rebuild_tensor_v2.__globals__",
        "torch.cuda.EvilStorage",
        "torch.float32x",
    ):
        assert pickled_names.runs_code(name)
    assert not pickled_names.runs_code("torch._utils._rebuild_tensor_v2")
    assert not pickled_names.runs_code("numpy.dtype")
    assert pickled_names.runs_code("numpy.load") and pickled_names.runs_code("torch.load")


def test_dtypes_are_torchs():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, dtype in pickled_names.VALUES.items():
            found = getattr(torch, name.removeprefix("torch."), None)
            assert found is None or str(found) in (name, name.removeprefix("torch.")), dtype
