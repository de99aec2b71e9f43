"""Why a rehearsal cannot be judged: what is our limit is never called the target's fault."""

import pytest

from auditor.recordings.schema.run import StepRow
from auditor.recordings.schema.sync import DeviceUseRow, LimitRow
from auditor.runs.rehearsal import NO_CUDA, _frames_in_worker, unfit

OURS = (
    "; this is a limit of the rehearsal, not a fault of the target: a call bypassed the simulated "
    "GPU and looked for a real one ("
)


class Rehearsed:
    """As much of a recording as is asked for."""

    def __init__(self, steps=0, error=None, limits=()):
        self.manifest = {"outcome": "raised" if error else "completed", "error": error}
        loud = [StepRow(pass_name="loud", step=number, us=1.0) for number in range(steps)]
        self.parts = {
            StepRow: loud,
            LimitRow: [LimitRow(**{"operator": "aten::op", **limit}) for limit in limits],
            DeviceUseRow: [DeviceUseRow(n=1)],
        }

    def rows(self, kind):
        return self.parts[kind]

    def site(self, number):
        return f"train.py:{number}"


def raised(kind, message):
    return {"type": kind, "message": message, "file": "/home/me/train.py", "line": 7}


@pytest.mark.parametrize(
    ("kind", "message", "sentence"),
    [
        ("RuntimeError", "Cannot access accelerator device when none is available.", None),
        (
            "NotImplementedError",
            (
                "Could not run 'aten::empty.memory_format' with arguments from the 'CUDA' backend. "
                "This could be because ..."
            ),
            (
                "NotImplementedError: Could not run 'aten::empty.memory_format' with arguments "
                "from "
                "the 'CUDA' backend"
            ),
        ),
        ("AssertionError", "Torch not compiled with CUDA enabled", None),
        ("AttributeError", "module 'torch._C' has no attribute '_cuda_getDeviceCount'", None),
        ("RuntimeError", "Distributed package doesn't have NCCL built in", None),
        (
            "RuntimeError",
            "0 active drivers ([]). There should only be one.",
            "RuntimeError: 0 active drivers ([])",
        ),
        ("OSError", "libcudart.so.12: cannot open shared object file", None),
    ],
)
def test_a_call_past_the_played_gpu_is_our_limit(kind, message, sentence):
    why = unfit(Rehearsed(2, raised(kind, message)))
    assert why == f"it ended after 2 steps{OURS}{sentence or f'{kind}: {message}'} at train.py:7)"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("AssertionError", "no kernel for this card"),
        (
            "RuntimeError",
            (
                "Expected all tensors to be on the same device, but found at least two devices, "
                "cuda:0 "
                "and cpu!"
            ),
        ),
        ("RuntimeError", "CUDA error: invalid device ordinal"),
        ("ValueError", "environment variable RANK expected, but not set"),
        ("KeyError", "'cuda'"),
    ],
)
def test_what_would_fail_on_a_gpu_as_well_is_no_limit(kind, message):
    assert (
        unfit(Rehearsed(1, raised(kind, message)))
        == f"it ended after 1 step ({kind}: {message} at train.py:7)"
    )


def test_a_refusal_has_its_own_sentence():
    refused = {
        "reason": "torch.distributed.init_process_group: one rank on one GPU is simulated, not 2",
        "at": 3,
    }
    why = unfit(Rehearsed(0, raised("ShadowLimit", "..."), [refused]))
    assert (
        why == "torch.distributed.init_process_group: one rank on one GPU "
        "is simulated, not 2 at train.py:3"
    )


def test_enough_steps_are_judged_whatever_came_after():
    assert (
        unfit(
            Rehearsed(
                12,
                raised("RuntimeError", "Cannot access accelerator device when none is available."),
            )
        )
        == ""
    )


@pytest.mark.parametrize(
    "said",
    [
        "Distributed package doesn't have NCCL built in",
        "No supported gpu backend found!",
        "`CUDAAccelerator` can not run on your system since the accelerator is not available.",
        "There is no GPU available on this machine",
    ],
)
def test_a_trainer_that_asks_for_a_gpu_is_rehearsed_instead(said):
    assert NO_CUDA.search(said)


@pytest.mark.parametrize(
    "said",
    [
        "`TPUAccelerator` can not run on your system since the accelerator is not available.",
        "No checkpoint found, so the GPU keeps the first weights",
        "no such option: --gpu. Device not found",
    ],
)
def test_other_errors_are_the_targets(said):
    assert not NO_CUDA.search(said)


IN_WORKER = """Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/torch/fetch.py", line 57, in fetch
    return self.collate_fn(data)
  File "/home/me/train.py", line 9, in collate
RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ..."""


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (IN_WORKER, [57, 9]),
        (IN_WORKER.replace("Cannot re-initialize CUDA", "no"), None),
        (IN_WORKER.replace("DataLoader worker", "my"), None),
        ("", None),
    ],
)
def test_frames_of_a_worker_that_asked_for_cuda(message, lines):
    frames = _frames_in_worker(Rehearsed(0, raised("RuntimeError", message)))
    assert (frames and [each["line"] for each in frames]) == lines
