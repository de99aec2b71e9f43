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


@pytest.mark.parametrize("word", [None, 3, ["cuda"], "", "Cuda", "tpu"])
def test_a_word_that_is_none_is_the_host_of_a_run(word: object) -> None:
    assert (device_named(word), input_named(word)) == (CPU, "run")
