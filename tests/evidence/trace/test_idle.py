"""Idle time of the device: shares by cause, and what is told of them."""

from dataclasses import replace

import pytest

from auditor.evidence.trace.idle import (
    DEVICE,
    DRIVER,
    HOST,
    INPUT,
    WAIT,
    DeviceIdle,
)

IDLE = DeviceIdle(
    steps=4,
    marked=True,
    window_us=1000.0,
    idle_us=((WAIT, 300.0), (HOST, 100.0), (DRIVER, 1.0), (INPUT, 0.9)),
    kernels=1234,
    short=617,
    median_kernel_us=8.0,
)


def test_shares_of_the_windows():
    assert (IDLE.share, IDLE.share_of(WAIT, HOST)) == (pytest.approx(0.4019), 0.4)
    assert (IDLE.us_per_step(WAIT, HOST), IDLE.share_of(DEVICE)) == (100.0, 0.0)
    nothing = DeviceIdle(idle_us=((WAIT, 300.0),))
    assert (nothing.share, nothing.share_of(WAIT), nothing.us_per_step(WAIT)) == (0.0, 0.0, 0.0)
    half = replace(nothing, window_us=0.5)
    assert (half.share, half.share_of(WAIT)) == (600.0, 600.0)


@pytest.mark.parametrize(
    ("short", "kernels", "small"),
    [(617, 1234, True), (616, 1234, False), (0, 0, False), (1, 1, True), (1, 2, True)],
)
def test_most_kernels_are_short(short, kernels, small):
    assert replace(IDLE, short=short, kernels=kernels).small is small
