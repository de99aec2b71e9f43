"""Our simulated allocator beside torch's own: every event, statistic and segment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditor import null_device
from tests.allocator.held import Recording, held
from tests.cuda.allocator_recorder import KEPT, QUICK

ROOT = Path(__file__).resolve().parent.parent.parent
HISTORIES = ROOT / "tests" / "allocator" / "histories"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Each set of cases, recorded by a process of its own on a null device."""
    found = {}
    for chosen in ("quick", "kept"):
        found[chosen] = folder = tmp_path_factory.mktemp(chosen)
        command = [sys.executable, "-W", "ignore", "-m", "tests.cuda.allocator_recorder"]
        subprocess.run(
            [*command, str(folder), chosen],
            cwd=ROOT,
            env={**os.environ, **null_device.environment("H100"), "OMP_NUM_THREADS": "1"},
            timeout=900,
            check=True,
            capture_output=True,
        )
    return found


@pytest.mark.parametrize("number", range(len(QUICK)), ids=[case.name for case in QUICK])
def test_ours_does_what_torch_s_own_does(recorded, number):
    recording = Recording.read(recorded["quick"] / f"{number}.json.gz")
    found = held(recording)
    assert found.difference is None
    assert found.events == len(recording.events) > 500
    assert found.samples > 100, "statistics after most operators"
    assert found.layouts > 3, "segments now and then"


def test_the_quick_cases_fill_the_card_and_give_back_segments(recorded):
    """Else the settings that are about that would not be held to anything."""
    recordings = [Recording.read(path) for path in recorded["quick"].iterdir()]
    actions = {event.action for recording in recordings for event in recording.events}
    assert actions >= {"oom", "segment_free", "segment_map", "segment_unmap"}
    retries = sum(recording.samples[-1][1][-4] for recording in recordings)
    assert retries > 5


def _in_order(recording):
    """The events; with several streams, those of segments that are given back apart, by size."""
    several = len({event.stream for event in recording.events}) > 1
    told = [(event.action, event.size) for event in recording.events]
    back = sorted(each for each in told if several and each[0] == "segment_free")
    return [each for each in told if not several or each[0] != "segment_free"], back


@pytest.mark.parametrize("number", range(len(KEPT)), ids=[case.name for case in KEPT])
def test_the_histories_that_are_kept_are_what_torch_does_now(recorded, number):
    """Those that tests/allocator compares without a CUDA build. Streams have other addresses in each
    process, and torch gives cached segments back in the order of these.
    """
    now = Recording.read(recorded["kept"] / f"{number}.json.gz")
    kept = Recording.read(HISTORIES / f"{number}.json.gz")
    if now.torch != kept.torch:
        pytest.skip(f"kept by {kept.torch}")
    assert now.name == kept.name
    assert _in_order(now) == _in_order(kept)
    assert [sample[1] for sample in now.samples] == [sample[1] for sample in kept.samples]
