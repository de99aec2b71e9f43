"""What ``audit view`` makes for TensorBoard: only what is missing, only inside the folder."""

import json

from auditor.cli import analyze
from auditor.extensions.tensorboard_tab import command as view
from tests.evidence.test_table import recorded

OPTIONS = {"select": (), "ignore": (), "fail_on": None, "formats": (), "quiet": True}


def audited(folder):
    """A run with its recording and its report, as ``audit analyze`` leaves it."""
    recorded(folder / "recording")
    assert analyze.analyze(paths=(str(folder),), out=None, **OPTIONS) == 0
    return folder


def files(run):
    """What is in its folder for TensorBoard, by the first word of the names."""
    return sorted(
        path.name.partition(".")[0] for path in (run / "tensorboard").rglob("*") if path.is_file()
    )


def test_a_run_that_is_opened_gets_its_trace_and_scalars(tmp_path):
    run = audited(tmp_path / "run")
    assert not (run / "tensorboard").exists()
    view.complete(tmp_path)
    assert files(run) == ["events", "host_0"]


def test_a_folder_that_is_there_is_left_as_it_is(tmp_path):
    run = audited(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (run / "tensorboard").symlink_to(tmp_path / "elsewhere")
    view.complete(tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_trace_outside_the_folder_is_not_copied(tmp_path):
    run = audited(tmp_path / "shown" / "run")
    trace = run / "recording" / "trace.json.gz"
    trace.rename(tmp_path / "private.json.gz")
    trace.symlink_to(tmp_path / "private.json.gz")
    view.complete(tmp_path / "shown")
    assert not (run / "tensorboard").exists()


def test_a_report_that_cannot_be_read_costs_the_others_nothing(tmp_path):
    broken, run = audited(tmp_path / "a"), audited(tmp_path / "b")
    (broken / "report.json").write_text(json.dumps({"schema": "other"}))
    view.complete(tmp_path)
    assert (broken / "tensorboard").exists() is False and files(run) == ["events", "host_0"]
