"""What a long run leaves on disk is bounded, nobody else's file is touched; the logged number."""

import sys
from types import SimpleNamespace

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.longrun import run as folders
from auditor.extensions.longrun.run import LOOKS, Folder
from auditor.extensions.longrun.trackers import sink


def test_the_last_reports_are_kept_and_nothing_else_is_removed(tmp_path):
    folder = Folder(tmp_path, keep=2)
    folder.open()
    made = [folder.fresh(step) for step in (1, 1, 2, 30)]
    assert len(set(made)) == 4
    theirs = tmp_path / LOOKS / "mine"
    theirs.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / LOOKS / "20200101-000000-step1").symlink_to(outside)
    old = tmp_path / LOOKS / "20200101-000000-step5"
    old.mkdir()
    (old / "report.html").write_text("old")
    folder.prune()
    left = sorted(each.name for each in (tmp_path / LOOKS).iterdir())
    assert len(left) == 4 and "mine" in left and "20200101-000000-step1" in left
    assert not old.exists() and outside.is_dir()
    folder.close()


@pytest.mark.parametrize(("free", "looks"), [(folders.ROOM, True), (folders.ROOM - 1, False)])
def test_a_disk_that_is_nearly_full_has_no_look(tmp_path, monkeypatch, free, looks):
    folder = Folder(tmp_path, keep=1)
    monkeypatch.setattr(
        folders.shutil, "disk_usage", lambda path: SimpleNamespace(total=0, used=0, free=free)
    )
    if looks:
        assert folder.fresh(1).is_dir()
    else:
        with pytest.raises(AuditProblem, match="less than 1 GiB left"):
            folder.fresh(1)


# -- trackers --------------------------------------------------------------------------------------


def test_trackers_that_are_not_there_or_have_no_run_are_left_alone(monkeypatch):
    for name in ("wandb", "mlflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        sink(name)({"a": 1.0}, 1)
        assert name not in sys.modules

    def refused(*_, **__):
        raise AssertionError("it would begin a run")

    idle = SimpleNamespace(run=None, log=refused)
    monkeypatch.setitem(sys.modules, "wandb", idle)
    sink("wandb")({"a": 1.0}, 1)
    none = SimpleNamespace(active_run=lambda: None, log_metrics=refused)
    monkeypatch.setitem(sys.modules, "mlflow", none)
    sink("mlflow")({"a": 1.0}, 1)


def test_trackers_with_a_run_get_the_numbers(monkeypatch):
    seen = []

    def log(data, step=None, commit=None):
        seen.append((data, step, commit))

    def log_metrics(metrics, step=None, synchronous=None):
        seen.append((metrics, step, synchronous))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=object(), log=log))
    sink("wandb")({"a": 1.0}, 5)
    active = SimpleNamespace(active_run=object, log_metrics=log_metrics)
    monkeypatch.setitem(sys.modules, "mlflow", active)
    sink("mlflow")({"a": 1.0}, 5)
    assert seen == [({"a": 1.0, "watch/step": 5}, None, False), ({"a": 1.0}, 5, False)]
