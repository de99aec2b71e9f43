"""The profiler's trace of a few steps, in Kineto's Chrome format, each step annotated."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from auditor.capture.instruments.torch_private.autograd import next_number
from auditor.capture.instruments.torch_private.own_log import errors_alone
from auditor.capture.probes.base import Context
from auditor.capture.probes.step.accelerators import accelerator_of

TRACE = "trace.json.gz"

LEVEL = "KINETO_LOG_LEVEL"

NODE_BYTES = 60 << 10
"""What the profiler takes of the host's memory when it stops, for each autograd node that was made
while it ran: 0.9 to 1.1 GB of 18,000 nodes and 75,000 operators (an LSTM cell, unrolled), 2 GB of
38,000 nodes (two of them under LBFGS); torch 2.13. Host memory itself does not tell before: a step's
own comes and goes by more than the profiler's buffers.
"""


class Trace:
    """Runs torch.profiler over some steps and writes ``trace.json.gz``.

    Shapes and memory events are recorded, Python stacks are not: they cost 1.3-1.8 times the step
    and their lines are those of function definitions (our probes know the exact lines).
    ``prof.events()`` is never called: reading the exported file back is more than ten times cheaper
    (benchmarks/readout.py).
    """

    def __init__(self, context: Context, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._profile: profile | None = None
        self._annotation: Any = None
        self._before = self._steps = 0
        self._loud: Callable[[], None] = lambda: None

    @property
    def full(self) -> bool:
        """What was traced so far will take so much memory that no further step should be."""
        if self._profile is None:
            return False
        nodes = next_number() - self._before
        return nodes * (1 + 1 / max(1, self._steps)) * NODE_BYTES > self._context.freed.room

    def start(self) -> None:
        """Begin to profile."""
        activities = [ProfilerActivity.CPU]
        accelerator = accelerator_of(self._context.device)
        if accelerator is not None:
            activities.append(accelerator.activity)
        self._profile = profile(activities=activities, record_shapes=True, profile_memory=True)
        self._loud = errors_alone()  # torch tells of blocks that are older than the profiler
        with _silent_kineto():
            self._profile.start()
        self._before = next_number()

    def step_begin(self) -> None:
        """Open the step's annotation."""
        if self._profile is not None:
            self._annotation = record_function(f"ProfilerStep#{self._context.step}")  # type: ignore[no-untyped-call]
            self._annotation.__enter__()

    def step_end(self) -> None:
        """Close it."""
        if self._annotation is not None:
            self._annotation.__exit__(None, None, None)
            self._annotation = None
            self._steps += 1

    def stop(self) -> None:
        """Stop profiling and write what was traced. May be called twice, and in a step."""
        self.step_end()
        profiler, self._profile = self._profile, None
        if profiler is None:
            return
        accelerator = accelerator_of(self._context.device)
        try:
            if accelerator is not None:
                accelerator.synchronize()
            profiler.stop()
        finally:
            self._loud()
        raw = self._folder / "trace.json"
        try:
            profiler.export_chrome_trace(str(raw))
            compress(raw, self._folder / TRACE)
        finally:
            raw.unlink(missing_ok=True)
            profiler.profiler = None  # else its events stay until Python looks for cycles


@contextmanager
def _silent_kineto() -> Iterator[None]:
    """Kineto reads what it may print at the first profiler; else it prints two lines for each."""
    given = os.environ.get(LEVEL)
    os.environ.setdefault(LEVEL, "99")
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(LEVEL, None)


def compress(raw: Path, packed: Path) -> None:
    """Level 2 by isal where installed: 9 times cheaper than torch's own ``.gz`` writer."""
    try:
        from isal import igzip

        target = igzip.open(packed, "wb", compresslevel=2)
    except ImportError:
        target = gzip.open(packed, "wb", compresslevel=2)  # noqa: SIM115 - closed below
    with raw.open("rb") as source, target:
        shutil.copyfileobj(source, target, 1 << 20)
