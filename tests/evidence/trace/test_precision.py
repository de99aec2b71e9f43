"""Arithmetic of a trace: shares of kernel time, and the generation by names of kernels."""

from types import SimpleNamespace

import pytest
from auditor.rules.amp.precision import _amd, _capability


def line(*kernels, index=0, capability=0, name="", calls=()):
    device = SimpleNamespace(index=index, capability=(capability, 0), name=name)
    return SimpleNamespace(
        trace=SimpleNamespace(info=SimpleNamespace(devices=[device])),
        devices=[SimpleNamespace(device=0)],
        kernels=[SimpleNamespace(name=each) for each in kernels],
        runtime_calls=[SimpleNamespace(name=each) for each in calls],
    )


@pytest.mark.parametrize(
    ("found", "major"),
    [
        (line(capability=9), 9),
        (line(capability=9, index=1), 0),
    ],
)
def test_the_capability_of_the_busiest_device(found, major):
    assert _capability(found) == major


@pytest.mark.parametrize(
    ("found", "amd"),
    [
        (line(name="AMD Instinct MI300X"), True),
        (line(name="Instinct"), True),
        (line(name="NVIDIA A100", calls=("cudaLaunchKernel",)), False),
        (line(calls=("cudaLaunchKernel", "hipLaunchKernel")), True),
    ],
)
def test_devices_of_amd(found, amd):
    assert _amd(found) is amd
