"""The text recogniser's checkpoints: the broken trainer's are poisoned, the repaired one's not."""

import importlib.util
from pathlib import Path

import pytest

from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.table import Evidence
from auditor.extensions.checkpoints import settings
from auditor.extensions.checkpoints.command import CheckpointRecording
from auditor.extensions.checkpoints.files import checkpoints_in, scans_of
from auditor.judging import catalogue, engine

EXAMPLE = Path(__file__).resolve().parent.parent.parent.parent / "examples" / "text_recogniser"
LOWERED = EXAMPLE / "broken" / "lowered.json"
RULES = tuple(
    rule
    for rule in catalogue.rules()
    if rule.code in ("NUM013", "CKPT001", "CKPT003", "CKPT006", "CKPT007")
)


def trainer(name):
    spec = importlib.util.spec_from_file_location("trainer", EXAMPLE / name / "trainer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Trains two epochs in an empty folder; the module and the findings on what it saved."""

    def make(name):
        monkeypatch.chdir(tmp_path)
        module = trainer(name)
        module.train(2)
        scans = tuple(scans_of(checkpoints_in(tmp_path / "checkpoints")))
        recording = CheckpointRecording(scans, settings.read(LOWERED))
        found = {
            (f.code, f.message.partition(":")[0].partition(" ")[0])
            for f in engine.judge(Evidence(recording), RULES).findings
        }
        return found, Evidence(recording).get(Checkpoints)

    return make


def test_the_broken_trainer_saves_a_poisoned_checkpoint_and_a_stale_rate(saved):
    found, checkpoints = saved("broken")
    assert found == {
        ("NUM013", "epoch_02.pt"),
        ("CKPT006", "epoch_01.pt"),
        ("CKPT006", "epoch_02.pt"),
    }
    assert checkpoints.latest_good is not None and checkpoints.latest_good.name == "epoch_01.pt"


def test_the_repaired_trainers_checkpoints_are_good(saved):
    found, checkpoints = saved("repaired")
    assert found == set()
    assert checkpoints.latest_good is not None and checkpoints.latest_good.name == "epoch_02.pt"
