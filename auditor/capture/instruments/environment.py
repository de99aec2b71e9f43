"""What the step runs on: versions, processors, device, thread counts, allocator settings."""

import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from auditor import null_device
from auditor.errors import TargetProblem
from auditor.machine import host_memory
from auditor.model.devices import CPU, CUDA, NULL, SHADOW, DeviceInfo


@contextmanager
def host_chance_kept() -> Iterator[None]:
    """Afterwards Python's and NumPy's own generators are as they were; torch's are not looked at."""
    array = sys.modules.get("numpy.random")
    python, drawn = random.getstate(), None if array is None else array.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        if array is not None:
            array.set_state(drawn)


def random_states() -> dict[str, int]:
    """A number for each of them (``torch``: the host's, and the current GPU's where CUDA is in use)
    that is the same as long as nothing is drawn from it, and again when it is set back.
    """
    tensors = [torch.get_rng_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        tensors.append(torch.cuda.get_rng_state())
    states = {
        "torch": hash(tuple(each.numpy().tobytes() for each in tensors)),
        "random": hash(random.getstate()[1]),
    }
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state = numpy_random.get_state(legacy=False)["state"]
        states["numpy"] = hash((state["key"].tobytes(), state["pos"]))
    return states


ALLOCATOR_VARIABLES = (
    "PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF CUDA_LAUNCH_BLOCKING OMP_NUM_THREADS".split()
)


def device_of(asked: str) -> DeviceInfo:
    """The device of the run for the requested one; a null device is one under any requested name.

    Raises :class:`TargetProblem` when CUDA was asked for and there is none.
    """
    if asked == "rehearse":
        return SHADOW
    there = torch.cuda.is_available()
    null = there and null_device.watching() is not None
    if asked == "null" and not null:
        raise TargetProblem("this process was to be on the null device, and torch sees none")
    if asked == "cuda" and not there:
        raise TargetProblem(
            "--device cuda: torch sees no CUDA device here",
            "use --device auto, or check nvidia-smi and the torch build",
        )
    if not there or asked == "cpu":
        return CPU
    return NULL if null else CUDA


def default_device() -> torch.device:
    """Where factories put tensors; up to torch 2.9 ``get_default_device`` may raise."""
    try:
        return torch.get_default_device()
    except AttributeError:
        return torch.device("cpu")


def describe(device: DeviceInfo) -> dict[str, str]:
    """Facts about this process and machine, as strings."""
    affinity = getattr(os, "sched_getaffinity", None)
    facts = {
        "torch": str(torch.__version__),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": str(len(affinity(0)) if affinity is not None else os.cpu_count() or 1),
        "torch_threads": str(torch.get_num_threads()),
        "host_memory": str(host_memory()),
    }
    if not device.accelerator:
        facts["operator_ns"] = str(_operator_ns())
    # else the shadow did not start, and its probe says why
    if device.shadow and torch.cuda.is_available():
        facts["device"] = f"{torch.cuda.get_device_name()} (rehearsed on the CPU)"
        facts["capability"] = _capability()
    if device.native:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts["cuda"] = str(torch.version.cuda or f"ROCm {torch.version.hip}")
        facts["device"] = f"{properties.name} (null device)" if device.null else properties.name
        facts["device_memory"] = str(properties.total_memory)
        if not torch.version.hip:  # AMD's numbers mean another thing
            facts["capability"] = _capability()
    for name in ALLOCATOR_VARIABLES:
        if os.environ.get(name):
            facts[name] = os.environ[name]
    return facts


def _operator_ns() -> int:
    """What a call of an operator takes on a few numbers: the fastest of some rounds."""
    numbers, calls, rounds = torch.ones(64, device="cpu"), 100, []
    for _ in range(8):
        began = time.perf_counter_ns()
        for _ in range(calls):
            numbers.mul_(1.0)
        rounds.append(time.perf_counter_ns() - began)
    return min(rounds) // calls


def _capability() -> str:
    return ".".join(str(part) for part in torch.cuda.get_device_capability())


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
