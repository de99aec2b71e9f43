"""Memory history and the observer of out-of-memory errors, against an allocator that is made up."""

import pickle

import pytest
import torch

from auditor.capture.instruments.torch_private import cuda
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.memory import snapshot
from auditor.model.devices import CUDA
from auditor.recordings.folder import RecordingWriter


class Allocator:
    """Stands in for torch's; ``refuses`` does as cudaMallocAsync and pluggable allocators do."""

    def __init__(self, monkeypatch):
        self.on, self.refuses, self.observers, self.calls = False, False, [], []
        monkeypatch.setattr(cuda, "history_is_on", lambda: self.on)
        monkeypatch.setattr(cuda, "attach_oom_observer", self.attach)
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(cuda, "record_history", self.record)
        monkeypatch.setattr(cuda, "take_snapshot", self.state)

    def _check(self):
        if self.refuses:
            raise RuntimeError(
                "cudaMallocAsync does not yet support this.\nIf you need it, please file an issue."
            )

    def attach(self, observer):
        self._check()
        self.observers.append(observer)

    def record(self, enabled="all", **kwargs):
        self._check()
        self.calls.append(enabled)
        self.on = enabled is not None

    def state(self):
        self._check()
        return {"segments": []}


@pytest.fixture
def allocator(monkeypatch):
    return Allocator(monkeypatch)


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def history(tmp_path, warnings):
    writer = RecordingWriter(tmp_path)
    return snapshot.MemoryHistory(
        Context(writer, Frames(writer, ()), device=CUDA, warn=warnings.append), tmp_path
    )


def test_history_is_switched_on_and_off_again(allocator, history, tmp_path):
    history.start()
    assert allocator.on
    history.stop()
    history.stop()
    assert not allocator.on and allocator.calls == ["all", None]
    assert pickle.loads((tmp_path / snapshot.SNAPSHOT).read_bytes()) == {"segments": []}


def test_history_of_the_users_own_goes_on(allocator, history, tmp_path):
    allocator.on = True
    history.start()
    history.stop()
    assert allocator.on and allocator.calls == []
    assert (tmp_path / snapshot.SNAPSHOT).is_file()


def test_allocator_without_history_is_said_and_not_raised(allocator, history, warnings, tmp_path):
    allocator.refuses = True
    history.start()
    history.stop()
    assert warnings == ["no memory snapshot was taken: cudaMallocAsync does not yet support this."]
    assert list(tmp_path.iterdir()) == []


def test_first_error_is_kept_until_disarmed(allocator, tmp_path):
    disarm = snapshot.watch_oom(tmp_path)
    (observe,) = allocator.observers
    observe(0, 1, 2, 3)
    file = tmp_path / snapshot.OOM_SNAPSHOT
    assert file.is_file()
    file.unlink()
    observe(0, 1, 2, 3)
    assert not file.exists()
    disarm()


def test_what_the_observer_cannot_do_is_no_error_of_the_users(allocator, tmp_path, monkeypatch):
    snapshot.watch_oom(tmp_path)

    def half_written(data, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(snapshot.pickle, "dump", half_written)
    allocator.observers[0](0, 1, 2, 3)
    assert list(tmp_path.iterdir()) == []


def test_allocator_without_observers(allocator, tmp_path):
    allocator.refuses = True
    snapshot.watch_oom(tmp_path)()
    assert allocator.observers == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be"), True),
        (
            RuntimeError(
                "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
            ),
            True,
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert snapshot.is_oom(error) is expected
