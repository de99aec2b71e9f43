"""What the step ran on, by the manifest alone."""

import pytest

from auditor.capture.instruments.environment import describe
from auditor.evidence.recorded.machine import Machine
from auditor.model.devices import CPU, SHADOW


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


def test_what_an_operator_takes_was_measured_on_the_host(seen):
    environment = describe(CPU)
    assert seen(manifest={"environment": environment}).get(Machine).operator_ns > 0
    assert "operator_ns" not in describe(SHADOW)
