"""The copy that patched code runs in: whatever happens there, the user's project stays as it is."""

import pytest

from auditor.recordings.writer import SOURCES, masked_lines, store_sources
from auditor.runs import project_copy
from auditor.runs.plan import Copied, Plan
from auditor.runs.project_copy import ProjectCopy


@pytest.fixture
def project(tmp_path):
    home = tmp_path / "home" / "repo" / "project"
    for folder in ("package/deep", ".git", "venv", "__pycache__", "audits/old", "env"):
        (home / folder).mkdir(parents=True)
    (home / "train.py").write_text("original")
    (home / "package" / "deep" / "model.py").write_text("original")
    (home / "package" / "deep" / "weights.bin").write_bytes(b"x" * (project_copy.FILE_LIMIT + 1))
    (home / ".git" / "HEAD").write_text("ref")
    (home / "env" / "pyvenv.cfg").write_text("")
    (home / "link.py").symlink_to("train.py")
    (home.parent / "data").mkdir()
    (home.parent / "data" / "train.txt").write_text("data")
    return home


def _copy(project, tmp_path, **files):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return project_copy.copy(project, scratch, files)


def test_what_the_program_writes_stays_in_the_copy(project, tmp_path):
    copied = _copy(project, tmp_path)
    (copied / "train.py").write_text("overwritten")
    (copied / "package" / "deep" / "model.py").unlink()
    (copied / "new").mkdir()
    assert (project / "train.py").read_text() == "original"
    assert (project / "package" / "deep" / "model.py").exists()
    assert not (project / "new").exists()


def test_a_patched_file_is_never_written_through_a_link(project, tmp_path, monkeypatch):
    monkeypatch.setattr(project_copy, "FILE_LIMIT", 2)  # so that all of them would be linked
    copied = _copy(project, tmp_path, **{"package/deep/model.py": b"patched"})
    assert (copied / "package" / "deep" / "model.py").read_text() == "patched"
    assert (project / "package" / "deep" / "model.py").read_text() == "original"
    assert (copied / "train.py").is_symlink()


def test_a_patched_file_in_a_folder_that_is_linked_otherwise_is_copied(project, tmp_path):
    (project / "venv" / "mine.py").write_text("original")
    copied = _copy(project, tmp_path, **{"venv/mine.py": b"patched"})
    assert (copied / "venv" / "mine.py").read_text() == "patched"
    assert (project / "venv" / "mine.py").read_text() == "original"


@pytest.mark.parametrize("inside", ["kept", "not/there/now"])
def test_a_file_can_be_left_out_and_another_one_added(inside, tmp_path):
    project = tmp_path / "project"
    (project / "kept").mkdir(parents=True)
    (project / "kept" / "gone.py").write_text("GONE = 1")
    (project / "module").mkdir()
    with ProjectCopy(
        project, {"kept/gone.py": None, f"{inside}/new.py": b"NEW = 1", "module": b"a repository"}
    ) as place:
        assert not (place.folder / "kept" / "gone.py").exists()
        assert (place.folder / inside / "new.py").read_text() == "NEW = 1"
        assert (place.folder / "module").is_dir()
    assert (project / "kept" / "gone.py").exists()
    assert not (project / inside / "new.py").exists()


def test_the_copy_is_bounded(project, tmp_path, monkeypatch):
    many = project / "many"
    many.mkdir()
    for number in range(30):
        (many / f"{number}.txt").write_text("x")
    monkeypatch.setattr(project_copy, "ENTRY_LIMIT", 20)
    copied = _copy(project, tmp_path)
    assert (copied / "many").is_symlink()
    assert sum(not path.is_symlink() for path in copied.rglob("*") if path.is_file()) <= 20


def test_absolute_paths_into_the_project_lead_into_the_copy(project):
    args = (str(project), f"--out={project}/runs", f"{project}-other", "lr=0.1", "")
    with ProjectCopy(project) as place:
        plan = place.plan(Plan(f"{project}/train.py", args, 1, 0, "cpu", "", ()))
        assert plan.target == f"{place.folder}/train.py"
        assert plan.args == (
            str(place.folder),
            f"--out={place.folder}/runs",
            f"{project}-other",
            "lr=0.1",
            "",
        )
        copied = place.folder
    assert not copied.exists()
    assert (project / "train.py").read_text() == "original"


def test_a_copy_inside_the_project_does_not_copy_itself(project, monkeypatch):
    (project / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(project / "tmp"))
    with ProjectCopy(project) as place:
        (inner,) = (place.folder / "tmp").iterdir()
        assert [path.name for path in inner.iterdir()] == ["kept"]
    assert not list((project / "tmp").iterdir())


def test_sources_are_those_that_ran(tmp_path):
    original, copied = tmp_path / "original", tmp_path / "copy"
    for folder, text in (
        (original, "NOW = 1\n"),
        (copied, 'THEN = 1\npassword = "hunter2-hunter2"\n'),
    ):
        folder.mkdir()
        (folder / "a.py").write_text(text)
    (copied / "gone.py").write_text("GONE = 1\n")
    ran = Copied(str(copied), str(original), str(tmp_path), str(tmp_path)).moved
    files = [str(original / "a.py"), str(original / "gone.py")]
    stored = store_sources(tmp_path / "recording", str(original), iter(files), ran)
    assert list(stored) == ["a.py", "gone.py"]
    assert "THEN" in (tmp_path / "recording" / SOURCES / stored["a.py"]).read_text()
    assert masked_lines(str(original), files, ran) == {"a.py": [2]}
    assert ran(str(tmp_path / "elsewhere.py")) == str(tmp_path / "elsewhere.py")
