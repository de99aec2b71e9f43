"""Traces of devices that nobody here has, written event by event; nobody recorded them.

``python -m tests.recordings.programs.made FOLDER``. Their numbers are held to a reader that shares
no code with ours, as those of the recorded ones are.
"""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path
from typing import Any

from tests.timeline.jobs import job
from tests.timeline.kineto import HEAD, call, kernel, loop, memcpy, note, op, text

Events = list[dict[str, Any]]
STEP = 10_000.0
"""Length of a step in us."""

AMD = HEAD.replace("NVIDIA A100", "AMD Instinct MI300X").replace(
    '"computeMajor": 8', '"computeMajor": 9'
)
ALONE = '  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},\n'


class Step:
    """Events of one step; times in us from its beginning, lengths drawn by a seed."""

    def __init__(self, number: int, start: float) -> None:
        self.start, self.draw, self.events = start, random.Random(number), Events()
        self.correlation = 1000 * number

    def launch(self, at: float, name: str, us: float, api: str = "cudaLaunchKernel") -> None:
        self.correlation += 1
        us = round(us * self.draw.uniform(0.9, 1.1), 3)
        self.events += [call(api, self.start + at, 4, self.correlation)]
        self.events += [kernel(name, self.start + at + 6.5, us, self.correlation)]

    def copy(
        self, at: float, kind: str, us: float, size: int, api: str = "cudaMemcpyAsync"
    ) -> None:
        """A copy whose call returns when it has arrived."""
        self.correlation += 1
        us = round(us * self.draw.uniform(0.9, 1.1), 3)
        self.events += [call(api, self.start + at, us + 9, self.correlation)]
        self.events += [memcpy(kind, self.start + at + 5, us, self.correlation, size)]

    def wait(self, at: float, us: float, api: str = "cudaStreamSynchronize") -> None:
        self.correlation += 1
        self.events += [
            call(api, self.start + at, round(us * self.draw.uniform(0.9, 1.1), 3), self.correlation)
        ]

    def op(self, name: str, at: float, us: float) -> None:
        self.events += [op(name, self.start + at, us)]

    def note(self, name: str, at: float, us: float) -> None:
        self.events += [note(name, self.start + at, us)]


def training(number: int, start: float) -> Events:
    """Waits for a loader (2 ms) and in five other ways; float32; SGD steps tensor by tensor."""
    step = Step(number, start)
    step.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10, 2000)
    step.op("aten::to", 2050, 440)
    step.op("aten::copy_", 2055, 430)
    step.copy(2060, "HtoD (Pageable -> Device)", 300, 1_200_000)
    step.wait(2400, 40)
    for place in range(12):
        step.op("aten::mm", 2600 + 60 * place, 30)
        step.launch(2605 + 60 * place, "ampere_sgemm_128x64_nn", 90)
    step.op("aten::item", 3400, 700)
    step.op("aten::_local_scalar_dense", 3405, 690)
    step.copy(3410, "DtoH (Device -> Pinned)", 2, 4)
    step.wait(3440, 500)
    step.op("aten::nonzero", 4200, 500)
    step.launch(4205, "void at::native::index_kernel", 12)
    step.wait(4230, 300)
    step.op("aten::to", 4800, 500)
    step.op("aten::copy_", 4805, 490)
    step.copy(4810, "DtoH (Device -> Pageable)", 200, 800_000)
    step.wait(5100, 60)
    step.note("Optimizer.step#SGD.step", 5400, 2500)
    for place in range(64):
        step.op("aten::add_", 5410 + 36 * place, 20)
        step.launch(5415 + 36 * place, "vectorized_elementwise_kernel", 3)
    step.wait(8200, 150, "cudaDeviceSynchronize")
    return step.events


def amd(number: int, start: float) -> Events:
    """A step on ROCm: names of its runtime, a copy that waits, float32 products by rocBLAS."""
    step = Step(number, start)
    step.op("aten::to", 100, 500)
    step.op("aten::copy_", 105, 490)
    step.copy(110, "HtoD (Host -> Device)", 250, 900_000, "hipMemcpyWithStream")
    for place in range(20):
        step.op("aten::mm", 700 + 50 * place, 30)
        step.launch(
            705 + 50 * place, "Cijk_Ailk_Bljk_SB_MT64x64x16_SN", 120, "hipExtModuleLaunchKernel"
        )
    step.op("aten::item", 3800, 200)
    step.op("aten::_local_scalar_dense", 3805, 190)
    step.copy(3810, "DtoH (Device -> Host)", 3, 4, "hipMemcpyWithStream")
    step.wait(3900, 60, "hipStreamSynchronize")
    for place in range(40):
        step.launch(
            5000 + 40 * place,
            "void at::native::vectorized_elementwise_kernel<4>",
            4,
            "hipLaunchKernel",
        )
    return step.events


def late(rank: int, step: int) -> float:
    """Rank 2 computes longer than the others, in us."""
    return 150.0 + 7 * step if rank == 2 else 11.0 * rank + step


def main(folder: Path) -> None:
    """Write every trace, gzipped without a time stamp."""
    pieces = {
        "made_training/trace.json.gz": text(loop(5, STEP, training), HEAD.replace(ALONE, "")),
        "made_amd/trace.json.gz": text(loop(4, STEP, amd), AMD.replace(ALONE, "")),
        **{f"made_nccl_ranks/rank{rank}.json.gz": trace for rank, trace in enumerate(job(4, late))},
    }
    for name, content in pieces.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(content.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
