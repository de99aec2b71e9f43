"""Reading a finished profile back: our way (export, then read the file) against ``prof.events()``,
on the same events.

    OMP_NUM_THREADS=1 python benchmarks/readout.py

Goal: ours at most a tenth. Both start from a stopped profiler; CPU seconds of this thread, median
of three profiles each.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from overhead import transformer

from auditor.capture.session import compress
from auditor.evidence.recorded.amp import facts_of
from auditor.timeline import Timeline

STEPS = 10


def profiled() -> profile:
    """A stopped profiler over some steps."""
    step = transformer()
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True
    ) as profiler:
        for number in range(STEPS):
            with record_function(f"ProfilerStep#{number}"):
                step()
    return profiler


def ours(profiler: profile) -> tuple[float, int]:
    """CPU seconds from stopped profiler to facts, and how many events."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.thread_time()
        raw, packed = Path(folder) / "trace.json", Path(folder) / "trace.json.gz"
        profiler.export_chrome_trace(str(raw))
        compress(raw, packed)
        facts = facts_of(Timeline.of(packed))
        return time.thread_time() - begin, facts.events


def theirs(profiler: profile) -> tuple[float, int]:
    """CPU seconds and events of the readout by ``prof.events()``."""
    begin = time.thread_time()
    events = profiler.events()
    return time.thread_time() - begin, len(events or ())


def main() -> None:
    torch.set_num_threads(1)
    ours(profiled())
    results = {
        "ours": [ours(profiled()) for _ in range(3)],
        "prof.events()": [theirs(profiled()) for _ in range(3)],
    }
    for name, runs in results.items():
        seconds, events = statistics.median(s for s, _ in runs), runs[0][1]
        print(f"{name:15} {seconds:.3f} s of CPU for {events} events")
    ratio = statistics.median(s for s, _ in results["prof.events()"]) / statistics.median(
        s for s, _ in results["ours"]
    )
    print(f"ours is {ratio:.1f} times cheaper")


if __name__ == "__main__":
    main()
