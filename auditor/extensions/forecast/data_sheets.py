"""What makers' data sheets say of a GPU: peak FLOP/s by arithmetic, bandwidth, L2.

Models that the null device plays have their L2 and bandwidth there (``auditor/model/gpus.py``);
peaks stand only here. Peaks are dense (without sparsity), at the boost clock, 16-bit with 32-bit
sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from auditor.errors import AuditProblem
from auditor.extensions.forecast.counts import FP8, FP32, FP64, TF32, VECTOR
from auditor.model.gpus import GPUS


@dataclass(frozen=True)
class DataSheet:
    """One model of GPU."""

    key: str
    names: tuple[str, ...]
    """Parts of the name that the driver gives, in capitals and with spaces for hyphens; the
    longest that fits decides."""
    l2_bytes: int
    """AMD's Infinity Cache counts as L2 where there is one."""
    bandwidth: float
    """Bytes a second."""
    half: float
    """FLOP/s with 16-bit inputs."""
    tf32: float
    """FLOP/s in TF32; that of fp32 where there is none."""
    fp32: float
    fp64: float
    source: str

    @property
    def amd(self) -> bool:
        """Whether it is AMD's; all others are NVIDIA's."""
        return self.key.startswith("MI")

    def peak(self, arithmetic: str) -> float:
        """FLOP/s in an arithmetic. 8-bit counts as twice 16-bit from Ada, Hopper and CDNA3 on."""
        eight = self.half * (2 if self.key in _WITH_FP8 else 1)
        by_name = {TF32: self.tf32, FP32: self.fp32, VECTOR: self.fp32, FP64: self.fp64, FP8: eight}
        return by_name.get(arithmetic, self.half)


_WITH_FP8 = frozenset({"H100", "H100-PCIe", "H200", "B200", "L40S", "L4", "RTX4090", "MI300X"})
_PLAYED = {gpu.key: (gpu.l2_bytes, float(gpu.bandwidth_bytes)) for gpu in GPUS}


def _sheet(
    key: str,
    names: str,
    peaks: tuple[float, float, float, float],
    source: str,
    memory: tuple[float, float] | None = None,
) -> DataSheet:
    """``names`` are parted by commas; ``peaks`` in TFLOP/s: 16-bit, TF32, fp32, fp64; ``memory`` is
    L2 in MiB and bandwidth in GB/s of a model that the null device does not know.
    """
    l2, bandwidth = _PLAYED[key] if memory is None else (int(memory[0] * 2**20), memory[1] * 1e9)
    half, tf32, fp32, fp64 = (each * 1e12 for each in peaks)
    return DataSheet(key, tuple(names.split(", ")), l2, bandwidth, half, tf32, fp32, fp64, source)


SHEETS = (
    _sheet("H100", "H100", (989.4, 494.7, 66.9, 66.9), "NVIDIA H100 data sheet (SXM)"),
    _sheet(
        "H100-PCIe",
        "H100 PCIE",
        (756, 378, 51.2, 51.2),
        "NVIDIA H100 data sheet (PCIe)",
        (50, 2039),
    ),
    _sheet("H200", "H200", (989.4, 494.7, 66.9, 66.9), "NVIDIA H200 data sheet (SXM)"),
    _sheet("B200", "B200", (2250, 1100, 75, 37), "NVIDIA DGX B200 data sheet, an eighth of it"),
    _sheet(
        "A100-80GB",
        "A100 SXM4 80GB, A100 80GB, A100 SXM 80GB, A100 PCIE 80GB",
        (312, 156, 19.5, 19.5),
        "NVIDIA A100 data sheet (80 GB SXM)",
    ),
    _sheet(
        "A100-40GB",
        "A100 SXM4 40GB, A100 PCIE 40GB, A100 PG509, A100",
        (312, 156, 19.5, 19.5),
        "NVIDIA A100 data sheet (40 GB)",
    ),
    _sheet("L40S", "L40S", (362.05, 183, 91.6, 1.43), "NVIDIA L40S data sheet", (96, 864)),
    _sheet("L4", "L4", (121, 60, 30.3, 0.49), "NVIDIA L4 data sheet, dense"),
    _sheet("A10", "A10, A10G", (125, 62.5, 31.2, 0.98), "NVIDIA A10 data sheet"),
    _sheet("RTX4090", "RTX 4090", (165.2, 82.6, 82.6, 1.29), "NVIDIA Ada architecture paper"),
    _sheet("V100", "V100", (125, 15.7, 15.7, 7.8), "NVIDIA V100 data sheet (SXM2)"),
    _sheet("T4", "T4", (65, 8.1, 8.1, 0.25), "NVIDIA T4 data sheet"),
    _sheet("RTX3090Ti", "RTX 3090 TI", (80, 40, 40, 0.63), "NVIDIA GA102 paper, scaled by clock"),
    _sheet("RTX3090", "RTX 3090", (71, 35.6, 35.6, 0.56), "NVIDIA GA102 paper", (6, 936)),
    _sheet("RTX3080", "RTX 3080", (59.5, 29.8, 29.8, 0.47), "NVIDIA GA102 paper", (5, 760)),
    _sheet("RTX2080Ti", "RTX 2080 TI", (53.8, 13.4, 13.4, 0.42), "NVIDIA Turing paper", (5.5, 616)),
    _sheet("A40", "A40", (149.7, 74.8, 37.4, 0.58), "NVIDIA A40 data sheet", (6, 696)),
    _sheet(
        "MI300X",
        "MI300X, MI300",
        (1307.4, 653.7, 163.4, 163.4),
        "AMD Instinct MI300X data sheet",
        (256, 5300),
    ),
    _sheet("MI250", "MI250", (181, 45.3, 45.3, 45.3), "AMD MI250 sheet, one die", (8, 1638)),
    _sheet("MI210", "MI210", (181, 45.3, 45.3, 45.3), "AMD MI210 data sheet", (8, 1638)),
)


def sheet_of(name: str) -> DataSheet:
    """The sheet of a key ("H100"; "A100" is the one of 80 GB) or of a driver's name; AuditProblem
    lists the keys.
    """
    wanted = _plain(name)
    for sheet in SHEETS:
        if wanted.replace(" ", "") in _keys(sheet):
            return sheet
    fits = [
        (len(part), sheet)
        for sheet in SHEETS
        for part in sheet.names
        if re.search(rf"{re.escape(part)}(?!\d)", wanted)
    ]
    if fits:
        return max(fits, key=lambda each: each[0])[1]
    raise AuditProblem(
        f"no data sheet of a GPU {name!r} is known",
        f"known are {', '.join(sheet.key for sheet in SHEETS)}",
    )


def _keys(sheet: DataSheet) -> set[str]:
    key = _plain(sheet.key).replace(" ", "")
    return {key, key.removesuffix("80GB")}


def _plain(name: str) -> str:
    return name.replace("-", " ").upper()
