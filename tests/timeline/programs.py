"""Traces of small programs: a host runs operators, a device their kernels, one by one."""

from contextlib import contextmanager
from typing import Any

from tests.timeline.kineto import HEAD, call, frame, kernel, note, op, text

NAMES = {"V100": (7, 0), "A100": (8, 0), "H100": (9, 0), "GP100": (6, 0)}


class Program:
    """In us. A kernel starts 3 us after its launch, or when the one before has ended."""

    def __init__(self, device="A100"):
        self.device = device
        self.events: list[dict[str, Any]] = []
        self.host = 1000.0
        self.free = 0.0
        self.launched = 0
        self.number = 0

    def operator(
        self,
        name,
        kernel_us=0.0,
        *,
        host_us=10.0,
        kernels=1,
        runs="vectorized_elementwise_kernel",
        stream=7,
        **args,
    ):
        """An operator that launches kernels (none where ``kernel_us`` is 0)."""
        begin = self.host
        self.events.append(op(name, begin, host_us, **args))
        for _ in range(kernels if kernel_us else 0):
            self.launch(runs, kernel_us, stream, host_us / (kernels + 1))
        self.host = begin + host_us

    def launch(self, runs, kernel_us, stream=7, host_us=5.0):
        """One launch of the host, and its kernel."""
        self.launched += 1
        self.events.append(
            call("cudaLaunchKernel", self.host + 0.5, min(2.0, host_us / 2), self.launched)
        )
        start = self.host + 3 if stream != 7 else max(self.host + 3, self.free)
        self.events.append(kernel(runs, start, kernel_us, self.launched, stream))
        if stream == 7:
            self.free = start + kernel_us
        self.host += host_us

    def think(self, us, function=""):
        """The host does something that is no operator."""
        if function:
            self.events.append(frame(function, self.host, us))
        self.host += us

    def drain(self):
        """The host comes back when the device has finished (no wait is recorded)."""
        self.host = max(self.host, self.free)

    @contextmanager
    def inside(self, name, *, annotation=False, **args):
        """A span around what the body does."""
        begin, place = self.host, len(self.events)
        self.host += 1
        yield
        self.host += 1
        span = (
            note(name, begin, self.host - begin)
            if annotation
            else op(name, begin, self.host - begin, **args)
        )
        self.events.insert(place, span)

    @contextmanager
    def step(self, *, drain=True):
        """A step of the profiler."""
        self.number += 1
        with self.inside(f"ProfilerStep#{self.number}", annotation=True):
            yield
            if drain:
                self.drain()

    def optimizer(self, name):
        """A span of ``Optimizer.step``."""
        return self.inside(f"Optimizer.step#{name}.step", annotation=True)

    def trace(self, **head):
        """The trace's text; ``head`` replaces values of ``distributedInfo``."""
        major, minor = NAMES[self.device]
        begin = HEAD.replace("NVIDIA A100", f"NVIDIA {self.device}")
        begin = begin.replace(
            '"computeMajor": 8, "computeMinor": 0',
            f'"computeMajor": {major}, "computeMinor": {minor}',
        )
        for key, value in head.items():
            old = {
                "rank": '"rank": 3',
                "backend": '"backend": "nccl"',
                "world_size": '"world_size": 8',
                "record_shapes": '"record_shapes": 1',
            }[key]
            begin = begin.replace(old, f'"{key}": {value}')
        return text(self.events, begin)
