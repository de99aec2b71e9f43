"""The corpora of fuzz/, never run: what is damaged is never good, what trainers save never bad."""

import collections
import math
import warnings
import zipfile

import pytest
import torch

from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints import files
from auditor.extensions.checkpoints.reading import NotACheckpoint
from fuzz import hostile_checkpoints, real_checkpoints

LOADED = {"another-pickle", "bytes-behind", "legacy-behind", "pickle-in-a-storage", "program"}
"""Hostile files that torch loads, that are whole, and of which all numbers are finite: what else is
in them is for other readers.
"""


def judged(paths):
    scans = zip(paths, files.scans_of(paths), strict=True)
    return {path: Checkpoint(each) for path, each in scans if not isinstance(each, NotACheckpoint)}


def test_a_hostile_checkpoint_is_good_only_if_torch_loads_it_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CPU_SECONDS", 0.0)  # some never end
    monkeypatch.chdir(tmp_path)
    paths = hostile_checkpoints.write(tmp_path / "hostile")
    found = judged(paths)
    good = {path for path, each in found.items() if each.good}
    assert len(paths) > 130 and {path.stem for path in good} <= LOADED
    for path in good:
        assert not zipfile.is_zipfile(path) or zipfile.ZipFile(path).testzip() is None
        numbers = torch.load(path, weights_only=True).values()
        assert all(isinstance(each, int) and math.isfinite(each) for each in numbers)
    assert [*tmp_path.iterdir()] == [tmp_path / "hostile"]
    calls = {path: each for path, each in found.items() if path.name.startswith("calls-")}
    assert len(calls) == len(hostile_checkpoints.CALLABLES)
    assert {each.verdict for each in calls.values()} == {"refused"}
    assert all(
        path.stem.removeprefix("calls-").removeprefix("builtins.") in each.scan.refused
        for path, each in calls.items()
    )


@pytest.fixture
def real(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return real_checkpoints.write(tmp_path)


def test_what_trainers_save_is_never_damaged(real):
    found = judged(real)
    verdicts = collections.Counter(each.verdict for each in found.values())
    assert len(found) == len(real) == 75
    assert verdicts["damaged"] == 0 and verdicts["refused"] <= 3 and verdicts["good"] >= 66
    for path, each in found.items():
        expected = "refused" if path.stem in ("protocol-4", "protocol-5") else "good"
        odd = path.name.startswith(("all_dtypes", "dtypes_", "quantized", "sparse", "nested"))
        assert each.verdict == ("not looked at" if odd else expected), (path.name, each.scan.limits)
