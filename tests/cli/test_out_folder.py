"""Where results are written: the user's files stay; one sentence where no file can be."""

import errno
import gzip

import pytest

from auditor.cli import out_folder, write_results
from auditor.cli.main import main
from auditor.errors import AuditProblem
from tests.timeline.kineto import text, training


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "host.pt.trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    return path


def audit(*words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", out_folder.WRITTEN)
def test_a_file_of_the_users_is_not_overwritten(trace, tmp_path, name, capsys):
    theirs = tmp_path / "mine" / name
    theirs.parent.mkdir()
    theirs.write_text('{"accuracy": 0.9}')
    for words in (("analyze", str(trace)), ("run", "trainer:step")):
        assert audit(*words, "--out", "mine") == 2
        assert f"mine/{name} was not written by audit" in capsys.readouterr().err
    assert theirs.read_text() == '{"accuracy": 0.9}'
    assert [path.name for path in theirs.parent.iterdir()] == [name]


def test_a_report_of_ours_is_written_anew_beside_other_files(trace, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    for _ in range(2):
        assert audit("analyze", str(trace), "--out", "mine") == 0
    assert (tmp_path / "mine" / "notes.txt").read_text() == "kept"
    assert out_folder.is_report(tmp_path / "mine" / "report.json")


def test_a_folder_that_cannot_be_made_is_known_before_the_run(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AuditProblem, match="cannot be written: Not a directory"):
        out_folder.make(tmp_path / "file" / "audits")
    with pytest.raises(AuditProblem, match="is a file; it must be a folder"):
        out_folder.make(tmp_path / "file")


def test_the_table_is_shown_though_the_disk_is_full(trace, monkeypatch, capsys):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write_results, "write_whole", full)
    assert audit("analyze", str(trace), "--format", "json") == 2
    shown = capsys.readouterr()
    assert "cannot be written to audits/host.pt.trace: No space left on device" in shown.err
    assert "Traceback" not in shown.err
    assert shown.out.startswith("{")
    assert audit("analyze", str(trace)) == 2
    assert "KERN001" in capsys.readouterr().out


def test_last_leads_to_the_newest_results_and_replaces_nothing_of_others(trace, tmp_path):
    assert audit("analyze", str(trace), "--out", "audits/first") == 0
    assert audit("analyze", str(trace), "--out", "audits/second") == 0
    last = tmp_path / "audits" / "last"
    assert last.is_symlink() and last.resolve() == tmp_path / "audits" / "second"
    assert audit("analyze", str(trace), "--out", "elsewhere") == 0
    assert last.resolve().name == "second"
    assert audit("analyze", str(trace), "--out", "audits/last") == 0
    assert last.resolve() == tmp_path / "audits" / "second", "a link to itself leads nowhere"
    last.unlink()
    last.mkdir()
    assert audit("analyze", str(trace), "--out", "audits/third") == 0
    assert not last.is_symlink() and not any(last.iterdir())
