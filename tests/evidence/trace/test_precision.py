"""Arithmetic of a trace: shares of kernel time, and the generation by names of kernels."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from auditor.rules.amp.precision import FP32, HALF, TF32, Precision, _amd, _capability

TABLE = Precision(
    device="A100",
    capability=8,
    busy=0.5,
    kernel_us=200.0,
    products_us=((HALF, 100.0), (FP32, 20.0)),
    matmul_us=((FP32, 10.0),),
    top=(("x" * 100, 15.0),),
)


def test_shares():
    wanted = (0.6, 0.0, 0.05)
    assert (TABLE.share(HALF, FP32), TABLE.share(TF32), TABLE.matmul_share(FP32)) == wanted
    assert TABLE.step_share(HALF) == 0.25
    empty = Precision(products_us=((HALF, 5.0),), matmul_us=((HALF, 5.0),))
    assert (empty.share(HALF), empty.matmul_share(HALF)) == (0.0, 0.0)
    small = replace(empty, kernel_us=0.5)
    assert (small.share(HALF), small.matmul_share(HALF)) == (10.0, 10.0)


def test_facts():
    assert TABLE.facts == (
        ("device", "A100, compute capability 8.x"),
        ("16-bit products", "50% of kernel time"),
        ("fp32 products", "10% of kernel time"),
        ("7.5%", "x" * 90),
    )
    assert replace(TABLE, amd=True).facts[0] == ("device", "A100")
    assert replace(TABLE, device="", capability=0).facts[0] == ("device", "not named")


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
