import gc
from pathlib import Path

import pytest
import torch

from auditor.capture.probes.sync.device_calls import CUDA_CALLS, DeviceCallsProbe
from tests.capture.drive import Drive, line_of, load

ALIASES = """
import functools, gc, torch
from gc import collect
from torch.cuda import empty_cache
import torch.cuda as tc

class Trainer:
    free = staticmethod(torch.cuda.empty_cache)

free = functools.partial(torch.cuda.empty_cache)

def by_default(free=torch.cuda.empty_cache):
    free()                      # by_default

def step():
    torch.cuda.empty_cache()    # dotted
    empty_cache()               # imported
    tc.empty_cache()            # module
    Trainer.free()              # class
    free()                      # partial
    by_default()
    gc.collect()                # gc
    collect()                   # collect
"""


def test_a_deprecated_name_is_the_same_and_other_libraries_are_not_the_user(tmp_path: Path) -> None:
    user = load(
        tmp_path,
        """
        import contextlib, warnings, torch
        def torchs():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.suppress(Exception):
                    torch.cuda.reset_max_memory_allocated()    # torchs
        def library():
            with contextlib.ExitStack() as stack:
                stack.callback(torch.cuda.empty_cache)
        """,
    )
    with Drive(tmp_path, DeviceCallsProbe) as drive:
        drive.run("quiet", user.torchs, steps=1)
        drive.run("loud", user.library, steps=1)  # contextlib calls it, not the user's line
        rows = drive.rows("calls")
    assert [(row["name"], row["at_line"]) for row in rows] == [
        ("reset_peak_memory_stats", line_of(user, "torchs"))
    ]


def test_everything_is_put_back_even_after_an_error(tmp_path: Path) -> None:
    user = load(
        tmp_path, ALIASES + "\ndef broken():\n    torch.cuda.empty_cache(); raise KeyError\n"
    )
    functions = [getattr(torch.cuda, name) for name in CUDA_CALLS]
    before = (
        [(f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions],
        gc.collect,
        user.collect,
    )
    with Drive(tmp_path, DeviceCallsProbe) as drive, pytest.raises(KeyError):
        drive.run("quiet", user.broken)
    assert (
        [(f.__code__, f.__defaults__, f.__kwdefaults__) for f in functions],
        gc.collect,
        user.collect,
    ) == before


def test_the_same_functions_of_torch_accelerator(tmp_path: Path) -> None:
    if not hasattr(torch, "accelerator"):
        pytest.skip("this torch has no torch.accelerator")
    user = load(
        tmp_path,
        "import torch\n\ndef step():\n    try:\n        torch.accelerator.synchronize()\n    "
        "except RuntimeError:\n        pass\n",
    )
    before = torch.accelerator.synchronize.__code__
    with Drive(tmp_path, DeviceCallsProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        (row,) = drive.rows("calls")
    assert (row["name"], row["at_line"], row["n"]) == ("synchronize", 5, 1)
    assert torch.accelerator.synchronize.__code__ is before
