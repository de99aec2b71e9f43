"""What the step ran on, by the manifest alone."""

import pytest

from auditor.evidence.recorded.machine import Machine
from auditor.rule import NotLooked


@pytest.mark.parametrize(
    ("environment", "cpus", "capability"),
    [
        ({"cpu_count": "6", "capability": "9.0"}, 6, 9),
        ({"cpu_count": "?", "capability": "gfx942"}, 0, 0),
        ({"cpu_count": "", "capability": ""}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_processors_and_capability(seen, environment, cpus, capability):
    table = seen(manifest={"environment": environment}).get(Machine)
    assert (table.device, table.cpus, table.capability) == ("cpu", cpus, capability)


@pytest.mark.parametrize(
    ("device", "cuda", "gpu_path", "simulated", "basis"),
    [
        ("cpu", False, False, False, "measured"),
        ("cuda", True, True, False, "measured"),
        ("rehearsal", False, True, True, "estimated"),
    ],
)
def test_what_may_be_asked_of_a_device(device, cuda, gpu_path, simulated, basis):
    machine = Machine(device)
    assert (machine.cuda, machine.gpu_path, machine.simulated) == (cuda, gpu_path, simulated)
    assert machine.bytes_basis == basis
    if gpu_path:
        machine.nothing_seen_without_cuda("why")
    else:
        with pytest.raises(NotLooked, match="no CUDA device in this run: why"):
            machine.nothing_seen_without_cuda("why")
