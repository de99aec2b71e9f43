"""What the step ran on, by the manifest alone."""

import pytest

from auditor.evidence.recorded.machine import Machine


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
