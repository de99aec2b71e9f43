"""Records what torch's own caching allocator does with a program: its history, its statistics after
each operator, its segments where the program says so.

    python -m torch_null_device -- python -m tests.cuda.allocator_recorder FOLDER [quick|kept|examples|every]

writes one recording a case into the folder. Each case runs in a process forked before the first use
of the device, so that torch is imported once.
"""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.allocator.held import STATS, Event, Recording
from tests.cuda.allocator_programs import EXAMPLE_NAMES, PROGRAMS, TRAININGS

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A program under settings, on a card of ``memory`` bytes."""

    program: str
    settings: str = ""
    memory: int | None = None

    @property
    def name(self) -> str:
        """As the table names it."""
        card = f", {self.memory // MIB} MiB" if self.memory is not None else ""
        return f"{self.program} [{self.settings}]{card}"


class _Sampled(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._recorder.sample()


def _flat(stats: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in stats.items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": one for key, one in _flat(value).items()})
        else:
            found[name] = value
    return found


def _block(row: dict[str, Any]) -> tuple[int, str, int]:
    """Bytes, state, requested bytes; of a free block torch keeps what was last asked for in it."""
    used = row["state"] != "inactive"
    return row["size"], row["state"], row["requested_size"] if used else 0


def _position(stats: dict[str, int]) -> int:
    """Events that torch has written: each is counted in one of these."""
    return sum(
        stats[key]
        for key in (
            "allocation.all.allocated",
            "allocation.all.freed",
            "active.all.freed",
            "num_device_alloc",
            "num_device_free",
            "num_ooms",
        )
    )


class Recorder:
    """Everything is written down from here to :meth:`finish`."""

    def __init__(self, case: Case) -> None:
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 40)
        self._case = case
        free, self._total = torch.cuda.mem_get_info()
        self._outside = self._total - free
        self._samples: dict[int, list[int]] = {}
        self._layouts: dict[int, list[Any]] = {}
        self._flushes: list[int] = []
        self._resets: list[int] = []

    def sample(self) -> None:
        """torch's statistics as they are now."""
        stats = _flat(torch._C._cuda_memoryStats(0))
        self._samples[_position(stats)] = [stats[key] for key in STATS]

    def mark(self) -> None:
        """torch's segments as they are now."""
        stats = _flat(torch._C._cuda_memoryStats(0))
        self._layouts[_position(stats)] = [
            (
                each["address"],
                each["total_size"],
                each["stream"],
                each["segment_type"],
                [_block(one) for one in each["blocks"]],
            )
            for each in torch.cuda.memory_snapshot()
        ]

    def flush(self, *args: Any, **kwargs: Any) -> None:
        """In place of ``torch.cuda.empty_cache``."""
        self._flushes.append(_position(_flat(torch._C._cuda_memoryStats(0))))
        torch._C._cuda_emptyCache()

    def reset(self, *args: Any, **kwargs: Any) -> None:
        """In place of ``torch.cuda.reset_peak_memory_stats``."""
        torch._C._cuda_resetPeakMemoryStats(0)
        self._resets.append(_position(_flat(torch._C._cuda_memoryStats(0))))
        self.sample()

    def finish(self) -> Recording:
        """What was recorded."""
        self.mark()
        self.sample()
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        events = [
            Event(
                each["action"],
                each.get("addr", each.get("device_free", 0)),
                each["size"],
                each["stream"],
            )
            for each in trace
            if each["action"] != "snapshot"
        ]
        return Recording(
            name=self._case.name,
            settings=self._case.settings,
            torch=torch.__version__,
            total=self._total,
            outside=self._outside,
            events=events,
            flushes=self._flushes,
            resets=self._resets,
            samples=sorted(self._samples.items()),
            layouts=sorted(self._layouts.items()),
        )


def record(case, program):
    """Runs the program; the device has not been used before."""
    torch.manual_seed(0)
    if case.settings:
        torch.cuda.memory._set_allocator_settings(case.settings)
    torch.cuda.init()
    gc.disable()  # cycles would be freed at other moments in another process
    recorder = Recorder(case)
    for module in (torch.cuda, torch.cuda.memory):
        module.empty_cache = recorder.flush  # type: ignore[attr-defined]
        module.reset_peak_memory_stats = recorder.reset  # type: ignore[attr-defined]
    with _Sampled(recorder):
        program(recorder.mark)
    gc.collect()
    return recorder.finish()


SPLIT = "max_split_size_mb:64"
ROUNDING = "max_split_size_mb:20,max_non_split_rounding_mb:40"
DIVIDED = "roundup_power2_divisions:[1:2,4:8,16:4,>:1]"
EXPANDABLE = "expandable_segments:True"
SEGMENTS = "large_segment_size_mb:64"
THROWN = "throw_on_cudamalloc_oom:True"
ALL = "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:4"
SETTINGS = ("", SPLIT, ROUNDING, DIVIDED, EXPANDABLE, SEGMENTS, ALL)
QUICK = (
    Case("gpt"),
    Case("convolutions", DIVIDED),
    Case("streams"),
    Case("lengths", EXPANDABLE),
    Case("sizes", ROUNDING, 750 * MIB),
    Case("full", "", 2000 * MIB),
    Case("full", EXPANDABLE, 2000 * MIB),
)
"""What tests/cuda compares."""
KEPT = (
    *(Case("few", settings) for settings in ("", DIVIDED, EXPANDABLE, SEGMENTS)),
    *(Case("few", settings, 620 * MIB) for settings in ("", ROUNDING, EXPANDABLE)),
    Case("streams"),
)
"""What tests/allocator/histories holds: compared where no CUDA build is."""
LONG = [program for program in TRAININGS if program not in ("few", "small")]
EVERY = (
    *(Case(program, settings) for program in LONG for settings in SETTINGS),
    *(Case("full", settings, 2000 * MIB) for settings in (*SETTINGS, THROWN)),
    *(Case("sizes", settings, 750 * MIB) for settings in (*SETTINGS, THROWN)),
    *(Case(name, settings) for name in EXAMPLE_NAMES for settings in ("", EXPANDABLE)),
)
"""What tests/cuda/allocator_beside_torch.py compares."""


def main(folder: Path, cases: list[Case]) -> int:
    """Records each case into ``folder``, numbered; 1 where one failed."""
    failed = 0
    for number, case in enumerate(cases):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if case.memory is not None:
                    os.environ["NULLDEVICE_GPU"] += f";memory={case.memory}"
                record(case, PROGRAMS[case.program]).write(folder / f"{number}.json.gz")
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        failed |= os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    return int(failed)


SETS = {
    "quick": QUICK,
    "kept": KEPT,
    "every": EVERY,
    "examples": tuple(case for case in EVERY if case.program in EXAMPLE_NAMES),
}

if __name__ == "__main__":
    chosen = sys.argv[2] if len(sys.argv) > 2 else "every"
    raise SystemExit(main(Path(sys.argv[1]), list(SETS[chosen])))
