"""GPU models that can be played: their memory as torch reports it, and what code asks of a
device. The null device has the same models (nulldevice/torch_null_device/gpus.py).
"""

from dataclasses import dataclass

from auditor.errors import AuditProblem


def _gib(amount: float) -> int:
    """Bytes of an amount in GiB, rounded to a MiB: as exactly as torch's messages tell it."""
    return round(amount * 1024) << 20


@dataclass(frozen=True)
class Gpu:
    """One model of GPU."""

    key: str
    name: str
    """As the driver gives it."""
    memory_bytes: int
    """What ``get_device_properties(0).total_memory`` says there; drivers differ by some MiB."""
    capability: tuple[int, int]
    processors: int
    """Streaming multiprocessors."""
    context_mib: int
    """What a process takes beside torch's allocator: the driver's context and loaded kernels."""


# Where each figure is from: nulldevice/torch_null_device/gpus.py.
GPUS = (
    Gpu("H100", "NVIDIA H100 80GB HBM3", _gib(79.11), (9, 0), 132, 522),
    Gpu("H200", "NVIDIA H200", _gib(139.81), (9, 0), 132, 520),
    Gpu("B200", "NVIDIA B200", _gib(178.35), (10, 0), 148, 520),
    Gpu("A100-80GB", "NVIDIA A100-SXM4-80GB", _gib(79.25), (8, 0), 108, 409),
    Gpu("A100-40GB", "NVIDIA A100-SXM4-40GB", 42_298_834_944, (8, 0), 108, 409),
    Gpu("L4", "NVIDIA L4", 23_583_784_960, (8, 9), 58, 358),
    Gpu("A10", "NVIDIA A10", _gib(21.99), (8, 6), 72, 223),
    Gpu("RTX4090", "NVIDIA GeForce RTX 4090", _gib(23.64), (8, 9), 128, 440),
    Gpu("V100", "Tesla V100-SXM2-32GB", _gib(31.74), (7, 0), 80, 409),
    Gpu("RTX3090Ti", "NVIDIA GeForce RTX 3090 Ti", 25_291_849_728, (8, 6), 84, 223),
    Gpu("RTX-PRO-5000", "NVIDIA RTX PRO 5000 72GB Blackwell", 76_374_540_288, (12, 0), 110, 440),
    Gpu("T4", "Tesla T4", _gib(14.75), (7, 5), 40, 100),
)


def gpu_named(name: str) -> Gpu:
    """The model of that key ("H100", "A100": of 80 GB) or driver's name, else AuditProblem."""
    wanted = name.replace(" ", "").replace("-", "").casefold()
    for gpu in GPUS:
        known = {gpu.key, gpu.name, gpu.key.removesuffix("-80GB")}
        if wanted in {each.replace(" ", "").replace("-", "").casefold() for each in known}:
            return gpu
    raise AuditProblem(
        f"no GPU model {name!r} is known", f"known are {', '.join(gpu.key for gpu in GPUS)}"
    )
