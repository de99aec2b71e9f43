from __future__ import annotations

import gc
import threading
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


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU it does not raise")
def test_a_call_that_raises_is_recorded_and_raises_the_same(tmp_path: Path) -> None:
    user = load(
        tmp_path,
        """
        import torch
        def step():
            try:
                torch.cuda.synchronize()    # sync
            except Exception as error:
                caught.append((type(error), str(error)))
        caught = []
        """,
    )
    user.step()
    with Drive(tmp_path, DeviceCallsProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        (row,) = drive.rows("calls")
    assert row["name"] == "synchronize" and row["at_line"] == line_of(user, "sync")
    assert user.caught[0] == user.caught[1]


def test_only_the_outermost_call_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", lambda device=None: {})
    user = load(tmp_path, "import torch\ndef step():\n    torch.cuda.max_memory_allocated()\n")
    with Drive(tmp_path, DeviceCallsProbe) as drive:
        drive.run("quiet", user.step, steps=1)  # max_memory_allocated calls memory_stats
        assert [(row["name"], row["n"]) for row in drive.rows("calls")] == [
            ("max_memory_allocated", 1)
        ]


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


def test_outside_the_step_and_on_other_threads_nothing_counts(tmp_path: Path) -> None:
    user = load(tmp_path, "import torch\ndef free():\n    torch.cuda.empty_cache()\n")

    def elsewhere() -> None:
        thread = threading.Thread(target=user.free)
        thread.start()
        thread.join()

    with Drive(tmp_path, DeviceCallsProbe) as drive:
        with drive.running("quiet"):
            user.free()
            drive.step(elsewhere)
            user.free()
        assert drive.rows("calls") == []


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
