"""What a step ran on and what is judged, by the one word that manifests and reports have for
both.
"""

import pytest

from auditor.model.devices import (
    CPU,
    CUDA,
    KINDS,
    NULL,
    SHADOW,
    DeviceInfo,
    device_named,
    input_named,
)


@pytest.mark.parametrize(
    "device",
    [CPU, CUDA, SHADOW, NULL, *map(DeviceInfo, sorted(KINDS))],
    ids=lambda device: device.word,
)
def test_a_word_is_read_as_it_is_written(device: DeviceInfo) -> None:
    assert device_named(device.word) == device
    assert input_named(device.word) == "run"
    assert device_named(device.seen_on).accelerator == device.accelerator
    assert device_named(device.seen_on).simulated == device.simulated


@pytest.mark.parametrize("word", ["trace", "snapshot", "checkpoint"])
def test_a_file_that_stands_alone_has_no_device(word: str) -> None:
    assert input_named(word) == word
    assert device_named(word) == CPU


@pytest.mark.parametrize("word", [None, 3, ["cuda"], "", "Cuda", "tpu"])
def test_a_word_that_is_none_is_the_host_of_a_run(word: object) -> None:
    assert (device_named(word), input_named(word)) == (CPU, "run")


@pytest.mark.parametrize(
    ("device", "timed", "native", "shadow", "seen_on"),
    [
        (CPU, False, False, False, "cpu"),
        (CUDA, True, True, False, "cuda"),
        (SHADOW, False, False, True, "rehearsal"),
        (NULL, False, True, False, "null"),
        (DeviceInfo("xpu"), True, True, False, "cuda"),
    ],
    ids=["cpu", "cuda", "shadow", "null", "xpu"],
)
def test_no_time_of_a_simulated_device_is_one_of_a_device(
    device: DeviceInfo, timed: bool, native: bool, shadow: bool, seen_on: str
) -> None:
    wanted = (timed, native, shadow, seen_on)
    assert (device.timed, device.native, device.shadow, device.seen_on) == wanted


def test_its_name_goes_along() -> None:
    assert device_named("cuda", "NVIDIA H200") == DeviceInfo("cuda", name="NVIDIA H200")
