"""GPU models that can be played: their memory as torch reports it, and what code asks of a
device.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_null_device.errors import NullDeviceProblem


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
    """What ``torch.cuda.get_device_properties(0).total_memory`` says there; it differs by a few MiB
    between drivers.
    """
    capability: tuple[int, int]
    processors: int
    """Streaming multiprocessors."""
    l2_bytes: int
    bus_bits: int
    memory_mhz: int
    clock_mhz: int
    context_mib: int
    """What a process takes of the memory beside torch's allocator: the driver's context and loaded
    kernels.
    """

    @property
    def bandwidth_bytes(self) -> int:
        """Bytes a second between the processors and memory at the memory's clock, two transfers a
        cycle.
        """
        return self.bus_bits // 8 * self.memory_mhz * 2 * 1_000_000

    @property
    def setting(self) -> str:
        """What the library reads from ``NULLDEVICE_GPU`` (csrc/settings.c)."""
        major, minor = self.capability
        return (
            f"name={self.name};memory={self.memory_bytes};context={self.context_mib << 20};"
            f"capability={major}.{minor};processors={self.processors};"
            f"l2={self.l2_bytes};bus_width={self.bus_bits};memory_clock={self.memory_mhz * 1000};clock={self.clock_mhz * 1000}"
        )


# Memory: what torch or deviceQuery printed on such a card, by the report named at each. Processors,
# L2, bus and clocks: deviceQuery where the report has them, else NVIDIA's architecture papers
# (V100, A100, H100, Ada, Turing) and data sheets. Context: "this process has ... in use" less what torch
# had reserved, in messages of the same kind (T4, A10, A100: the reports named; L4: 21.80 - 20.30 -
# 1.15 GiB in github.com/meta-llama/llama-cookbook/pull/898; H200: 12.62 - 12.10 GiB; RTX 4090:
# 23.26 - 22.19 - 0.64 GiB; H100: an idle process of 522 MiB). It grows with the kernels that a
# program loads. B200: taken as H200's, V100: as A100's.
GPUS = (
    # 79.11 GiB: github.com/vllm-project/vllm/issues/27508. H100 architecture paper: 132 processors,
    # 50 MB, 5 stacks, 3.35 TB/s.
    Gpu("H100", "NVIDIA H100 80GB HBM3", _gib(79.11), (9, 0), 132, 50 << 20, 5120, 2619, 1980, 522),
    # 143771 MiB of board memory (github.com/NVIDIA/cuda-samples/issues/311), of which torch sees
    # 139.81 GiB; 4.8 TB/s by its data sheet.
    Gpu("H200", "NVIDIA H200", _gib(139.81), (9, 0), 132, 60 << 20, 6144, 3201, 1980, 520),
    # 178.35 GiB, 148 processors, 126.5 MB, 7680 bits, 3996 MHz: github.com/pytorch/ao/pull/4002.
    Gpu(
        "B200",
        "NVIDIA B200",
        _gib(178.35),
        (10, 0),
        148,
        int(126.5 * (1 << 20)),
        7680,
        3996,
        1965,
        520,
    ),
    # 79.25 GiB: github.com/HiDream-ai/VAREdit/issues/6. A100 architecture paper: 108 processors, 40
    # MB, 5120 bits; 2.04 TB/s.
    Gpu(
        "A100-80GB",
        "NVIDIA A100-SXM4-80GB",
        _gib(79.25),
        (8, 0),
        108,
        40 << 20,
        5120,
        1593,
        1410,
        409,
    ),
    # 42298834944 bytes, 1410 MHz, 1215 MHz, 5120 bits, 41943040 bytes of L2:
    # github.com/bottlerocket-os/bottlerocket/pull/3873.
    Gpu(
        "A100-40GB",
        "NVIDIA A100-SXM4-40GB",
        42_298_834_944,
        (8, 0),
        108,
        40 << 20,
        5120,
        1215,
        1410,
        409,
    ),
    # 23583784960 bytes, 58 processors, 2040 MHz:
    # github.com/bottlerocket-os/bottlerocket-kernel-kit/pull/139; 300 GB/s by its data sheet.
    Gpu("L4", "NVIDIA L4", 23_583_784_960, (8, 9), 58, 48 << 20, 192, 6251, 2040, 358),
    # 21.99 GiB: github.com/zai-org/CogVLM/issues/236. 600 GB/s by its data sheet; GA102 has 6 MB.
    Gpu("A10", "NVIDIA A10", _gib(21.99), (8, 6), 72, 6 << 20, 384, 6251, 1695, 223),
    # 23.64 GiB as torch's messages tell it. Ada architecture paper: 128 processors, 72 MB, 384
    # bits, 1008 GB/s.
    Gpu(
        "RTX4090",
        "NVIDIA GeForce RTX 4090",
        _gib(23.64),
        (8, 9),
        128,
        72 << 20,
        384,
        10501,
        2520,
        440,
    ),
    # 31.74 GiB: github.com/liucongg/ChatGLM-Finetuning/issues/73. V100 architecture paper: 80
    # processors, 6 MB, 4096 bits, 1530 MHz; 900 GB/s. Builds of torch for CUDA 13 have no kernels
    # for it.
    Gpu("V100", "Tesla V100-SXM2-32GB", _gib(31.74), (7, 0), 80, 6 << 20, 4096, 877, 1530, 409),
    # 25291849728 bytes, 84 processors, 6291456 bytes of L2, 384 bits, 10501 MHz, 2100 MHz, measured:
    # profiles/ampere/consumer/rtx3090ti.yaml in github.com/FanBB2333/FakeGPU. Context: A10's, the
    # same chip.
    Gpu(
        "RTX3090Ti",
        "NVIDIA GeForce RTX 3090 Ti",
        25_291_849_728,
        (8, 6),
        84,
        6 << 20,
        384,
        10501,
        2100,
        223,
    ),
    # 76374540288 bytes, 110 processors, 100663296 bytes of L2, 384 bits, 14001 MHz, 2377 MHz,
    # measured: profiles/blackwell/workstation/rtx-pro-5000-blackwell.yaml there. Context: taken as
    # RTX 4090's.
    Gpu(
        "RTX-PRO-5000",
        "NVIDIA RTX PRO 5000 72GB Blackwell",
        76_374_540_288,
        (12, 0),
        110,
        96 << 20,
        384,
        14001,
        2377,
        440,
    ),
    # 14.75 GiB: github.com/hpcaitech/Open-Sora/issues/697. Turing architecture paper: 40
    # processors, 4 MB, 256 bits, 320 GB/s.
    Gpu("T4", "Tesla T4", _gib(14.75), (7, 5), 40, 4 << 20, 256, 5001, 1590, 100),
)


def gpu_named(name: str) -> Gpu:
    """The model of that key ("H100", "A100" is the one of 80 GB) or of the driver's name;
    NullDeviceProblem lists the keys.
    """
    wanted = name.replace(" ", "").replace("-", "").casefold()
    for gpu in GPUS:
        known = {gpu.key, gpu.name, gpu.key.removesuffix("-80GB")}
        if wanted in {each.replace(" ", "").replace("-", "").casefold() for each in known}:
            return gpu
    raise NullDeviceProblem(
        f"no GPU model {name!r} is known", f"known are {', '.join(gpu.key for gpu in GPUS)}"
    )
