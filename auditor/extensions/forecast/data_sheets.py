"""What makers' data sheets say of a GPU: peak FLOP/s by arithmetic, bandwidth, L2, processors.

Models that the null device plays have their processors, L2 and clocks there
(``auditor/model/gpus.py``); peaks stand only here. Peaks are dense (without sparsity), at the
boost clock, 16-bit with 32-bit sums.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from auditor.errors import AuditProblem
from auditor.extensions.forecast.counted import FP8, FP32, FP64, HALF, TF32, VECTOR
from auditor.model.gpus import GPUS

_TERA, _GIGA, _MIB = 1e12, 1e9, 1 << 20


@dataclass(frozen=True)
class DataSheet:
    """One model of GPU."""

    key: str
    vendor: str
    """``nvidia`` or ``amd``."""
    names: tuple[str, ...]
    """Parts of the name that the driver gives, in capitals and with spaces for hyphens; the
    longest that fits decides."""
    processors: int
    """Streaming multiprocessors, or compute units."""
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
    def generation(self) -> str:
        """``hopper`` for Hopper and what came after it, else the vendor: from Hopper on, products
        are fed by a copy engine (TMA) that takes rows aligned to 16 bytes only.
        """
        return "hopper" if self.key in _WITH_TMA else self.vendor

    def peak(self, arithmetic: str) -> float:
        """FLOP/s in an arithmetic. 8-bit counts as twice 16-bit from Ada, Hopper and CDNA3 on."""
        if arithmetic == FP8:
            return self.half * (2 if self.key in _WITH_FP8 else 1)
        by_name = {
            HALF: self.half,
            TF32: self.tf32,
            FP32: self.fp32,
            VECTOR: self.fp32,
            FP64: self.fp64,
        }
        return by_name.get(arithmetic, self.half)

    def roofline_us(self, flops: float, size: float, arithmetic: str) -> float:
        """The least time that the sheet allows, in us. Bytes that fit into the L2 may be there
        already, so they cost nothing here.
        """
        moved = size / self.bandwidth if size > self.l2_bytes else 0.0
        return max(flops / self.peak(arithmetic), moved) * 1e6


_WITH_FP8 = frozenset({"H100", "H100-PCIe", "H200", "B200", "L40S", "L4", "RTX4090", "MI300X"})

_WITH_TMA = frozenset({"H100", "H100-PCIe", "H200", "B200"})
GENERATIONS = ("nvidia", "hopper", "amd")
"""Values of :attr:`DataSheet.generation`."""


def _played(
    key: str, names: tuple[str, ...], peaks: tuple[float, float, float, float], source: str
) -> DataSheet:
    """A model that the null device knows; peaks in TFLOP/s: 16-bit, TF32, fp32, fp64."""
    gpu = next(gpu for gpu in GPUS if gpu.key == key)
    half, tf32, fp32, fp64 = (each * _TERA for each in peaks)
    return DataSheet(
        key, "nvidia", names, gpu.processors, gpu.l2_bytes, float(gpu.bandwidth_bytes),
        half, tf32, fp32, fp64, source,
    )  # fmt: skip


def _other(
    key: str,
    names: tuple[str, ...],
    shape: tuple[int, float, float],
    peaks: tuple[float, float, float, float],
    source: str,
) -> DataSheet:
    """Any other model; ``shape`` is processors, L2 in MiB, bandwidth in GB/s."""
    processors, l2_mib, bandwidth = shape
    half, tf32, fp32, fp64 = (each * _TERA for each in peaks)
    vendor = "amd" if key.startswith("MI") else "nvidia"
    return DataSheet(
        key, vendor, names, processors, int(l2_mib * _MIB), bandwidth * _GIGA,
        half, tf32, fp32, fp64, source,
    )  # fmt: skip


SHEETS = (
    _played("H100", ("H100",), (989.4, 494.7, 66.9, 66.9), "NVIDIA H100 data sheet (SXM)"),
    _other(
        "H100-PCIe",
        ("H100 PCIE",),
        (114, 50, 2039),
        (756, 378, 51.2, 51.2),
        "NVIDIA H100 data sheet (PCIe)",
    ),
    _played("H200", ("H200",), (989.4, 494.7, 66.9, 66.9), "NVIDIA H200 data sheet (SXM)"),
    _played("B200", ("B200",), (2250, 1100, 75, 37), "NVIDIA DGX B200 data sheet, an eighth of it"),
    _played(
        "A100-80GB",
        ("A100 SXM4 80GB", "A100 80GB", "A100 SXM 80GB", "A100 PCIE 80GB"),
        (312, 156, 19.5, 19.5),
        "NVIDIA A100 data sheet (80 GB SXM)",
    ),
    _played(
        "A100-40GB",
        ("A100 SXM4 40GB", "A100 PCIE 40GB", "A100 PG509", "A100"),
        (312, 156, 19.5, 19.5),
        "NVIDIA A100 data sheet (40 GB)",
    ),
    _other("L40S", ("L40S",), (142, 96, 864), (362.05, 183, 91.6, 1.43), "NVIDIA L40S data sheet"),
    _played("L4", ("L4",), (121, 60, 30.3, 0.49), "NVIDIA L4 data sheet, dense"),
    _played("A10", ("A10", "A10G"), (125, 62.5, 31.2, 0.98), "NVIDIA A10 data sheet"),
    _played("RTX4090", ("RTX 4090",), (165.2, 82.6, 82.6, 1.29), "NVIDIA Ada architecture paper"),
    _played("V100", ("V100",), (125, 15.7, 15.7, 7.8), "NVIDIA V100 data sheet (SXM2)"),
    _played("T4", ("T4",), (65, 8.1, 8.1, 0.25), "NVIDIA T4 data sheet"),
    _played(
        "RTX3090Ti", ("RTX 3090 TI",), (80, 40, 40, 0.63), "NVIDIA GA102 paper, scaled by clock"
    ),
    _other("RTX3090", ("RTX 3090",), (82, 6, 936), (71, 35.6, 35.6, 0.56), "NVIDIA GA102 paper"),
    _other("RTX3080", ("RTX 3080",), (68, 5, 760), (59.5, 29.8, 29.8, 0.47), "NVIDIA GA102 paper"),
    _other(
        "RTX2080Ti",
        ("RTX 2080 TI",),
        (68, 5.5, 616),
        (53.8, 13.4, 13.4, 0.42),
        "NVIDIA Turing paper",
    ),
    _other("A40", ("A40",), (84, 6, 696), (149.7, 74.8, 37.4, 0.58), "NVIDIA A40 data sheet"),
    _other("P100", ("P100",), (56, 4, 732), (18.7, 9.3, 9.3, 4.7), "NVIDIA P100 data sheet (PCIe)"),
    _other("GP100", ("GP100",), (56, 4, 717), (20.7, 10.3, 10.3, 5.2), "Quadro GP100 data sheet"),
    _other("P4", ("TESLA P4",), (20, 2, 192), (5.5, 5.5, 5.5, 0.17), "NVIDIA P4 data sheet"),
    _other(
        "MI300X",
        ("MI300X", "MI300"),
        (304, 256, 5300),
        (1307.4, 653.7, 163.4, 163.4),
        "AMD Instinct MI300X data sheet",
    ),
    _other(
        "MI250", ("MI250",), (104, 8, 1638), (181, 45.3, 45.3, 45.3), "AMD MI250 sheet, one die"
    ),
    _other("MI210", ("MI210",), (104, 8, 1638), (181, 45.3, 45.3, 45.3), "AMD MI210 data sheet"),
    _other("MI100", ("MI100",), (120, 8, 1229), (184.6, 46.1, 46.1, 11.5), "AMD MI100 data sheet"),
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
