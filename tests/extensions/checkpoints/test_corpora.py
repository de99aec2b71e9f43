"""The two corpora of fuzz/: no hostile checkpoint is good, no real one is bad. Nothing of them is
ever run.
"""

from __future__ import annotations

import faulthandler
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints.contents import NotACheckpoint
from auditor.extensions.checkpoints.scan import scan
from auditor.isolation import ReaderDied, isolated
from fuzz import attacks, hostile_checkpoints, oracle, real_checkpoints

CRASH = ("deep-", "squared-", "huge-")
"""Files that torch itself dies of, hangs at, or takes all memory for."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return hostile_checkpoints.write(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return real_checkpoints.write(tmp_path_factory.mktemp("real"))


def judged(path: Path) -> Checkpoint | None:
    try:
        return Checkpoint(scan(path))
    except NotACheckpoint:
        return None


def loads(path: Path) -> bool:
    """Whether torch loads it without running code: asked in a process that may die of it."""

    def load() -> bool:
        faulthandler.disable()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.load(path, weights_only=True)
        return True

    try:
        return isolated(load, seconds=30.0, memory=8 << 30)
    except ReaderDied:
        return False


def test_no_hostile_checkpoint_is_good(hostile):
    assert len(hostile) > 500
    good = [path.name for path in hostile if (found := judged(path)) is not None and found.good]
    assert not good


def test_what_calls_something_is_named(hostile):
    unsaid = []
    for path in hostile:
        if path.name.startswith(
            ("calls-", "disguised-", "legacy-0", "legacy-1", "legacy-2", "legacy-3", "legacy-4")
        ):
            found = judged(path)
            if found is None or not found.codes:
                unsaid.append(path.name)
    assert not unsaid


def test_no_real_checkpoint_is_bad(real):
    bad = {}
    for path in real:
        found = judged(path)
        if found is None or not found.good:
            bad[path.name] = found and (found.scan.damage, found.codes)
    assert not bad


def test_torch_and_we_agree_on_real_ones(real):
    """What torch loads with weights_only=True has no finding; what it refuses has one, and is still
    good.
    """
    for path in real:
        if path.suffix == ".safetensors":
            continue
        scanned = scan(path)
        assert loads(path) == (not scanned.foreign and not scanned.beyond), path.name


def test_what_torch_refuses_or_finds_poisoned_is_never_good(tmp_path):
    """A sample of ``python -m fuzz.attacks``, thirteen kinds; torch itself says what each is."""
    counts, wrong = attacks.compare(tmp_path, seed=17, number=520)
    assert not wrong
    assert all(each["good"] >= 2 and each["not good"] >= 2 for each in counts.values())


def test_two_hundred_states_of_layers_optimizers_and_schedules_are_good(tmp_path):
    bad = {}
    for number, (name, content) in enumerate(real_checkpoints.many()):
        path = tmp_path / f"{name}.pt"
        path.write_bytes(
            real_checkpoints.saved(content, _use_new_zipfile_serialization=number % 4 != 3)
        )
        found = judged(path)
        if found is None or not found.good:
            bad[name] = found and (found.scan.damage, found.scan.limits, found.poisoned)
    assert not bad and number >= 199


def test_the_oracle_sees_what_it_should(tmp_path):
    """Of files that are whole, poisoned, nonsense, and that crash whoever reads them."""
    layout = attacks.Call(torch.serialization._get_layout, "torch.sparse_csr")
    parts = (attacks._integers([0, 2**40, 2**41]), attacks._integers([0, 1]))
    crash = attacks.Call(
        torch._utils._rebuild_sparse_tensor, layout, (*parts, attacks.tensor(torch.ones(2)), (2, 2))
    )
    trees = (
        attacks.tensor(torch.ones(2)),
        attacks.tensor(torch.tensor([float("nan")])),
        attacks.Call(torch.device, "evil"),
        crash,
    )
    files = []
    for number, tree in enumerate(trees):
        (tmp_path / f"{number}.pt").write_bytes(attacks.archive(tree))
        files.append((tmp_path / f"{number}.pt", False))
    assert oracle.verdicts(files) == [oracle.FIT, oracle.POISONED, oracle.REFUSED, oracle.DIED]


def test_what_torch_refuses_of_the_hostile_ones_is_never_good(hostile):
    for path in hostile[::7]:  # a seventh: the list above holds all of them
        if not path.name.startswith(CRASH) and path.suffix == ".pt" and not loads(path):
            found = judged(path)
            assert found is None or not found.good, path.name


def test_a_sharded_tensor(tmp_path):
    content = real_checkpoints.dtensor()
    torch.save(content, tmp_path / "x.pt")
    found = Checkpoint(scan(tmp_path / "x.pt"))
    assert (
        found.good
        and len(found.scan.tensors) >= 2
        and "torch.distributed.tensor.DTensor" in found.scan.foreign
    )


def test_arguments_of_a_trainer_are_a_note(tmp_path):
    pickled = b"\x80\x02ctransformers.training_args\nTrainingArguments\n)\x81}X\x02\x00\x00\x00lrG?PbM\xd2\xf1\xa9\xfcsb."
    (tmp_path / "training_args.bin").write_bytes(hostile_checkpoints.archive(pickled))
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "training_args.bin")])
    assert result.exit_code == 0 and "good" in result.output
    assert (
        "note" in result.output and "transformers.training_args.TrainingArguments" in result.output
    )


def test_a_module_saved_whole_is_said_to_be_one(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "model.pt")])
    assert result.exit_code == 1 and "BAD" in result.output
    assert (
        "holds a module saved whole" in result.output
        and "torch.nn.modules.linear.Linear" in result.output
    )


@pytest.mark.parametrize(
    "name",
    ["torch.hub.load", "pickle.loads", "_posixsubprocess.fork_exec", "collections.namedtuple"],
)
def test_any_name_that_is_on_no_list_is_an_error(tmp_path, name):
    (tmp_path / "x.pt").write_bytes(hostile_checkpoints.archive(hostile_checkpoints.call(name)))
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 1 and "x.pt  BAD" in result.output
    assert "error" in result.output and name in result.output


def test_a_file_that_nobody_can_read_costs_one_line_of_a_folder(tmp_path, monkeypatch):
    import os
    import signal

    from auditor.extensions.checkpoints import scan as scanning

    torch.save({"step": 3, "w": torch.ones(2)}, tmp_path / "good.pt")
    torch.save({"step": 9, "w": torch.ones(2)}, tmp_path / "kills.pt")
    whole = scanning.scan

    def dies(path):
        faulthandler.disable()
        return os.kill(os.getpid(), signal.SIGSEGV) if path.name == "kills.pt" else whole(path)

    monkeypatch.setattr(scanning, "scan", dies)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["checkpoint", "."])
    assert result.exit_code == 1
    assert "kills.pt" in result.output and "SIGSEGV" in result.output
    assert result.output.rstrip().endswith("latest good: good.pt")
