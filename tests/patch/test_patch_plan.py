"""Plans over many files, and writing them in place."""

import os
import stat

import pytest

from auditor.model import Edit, Site
from auditor.patch import PatchedFile, Plan, Refused, plan, write

LOADER = b"import x\nd = DataLoader(ds)\nempty_cache()\n"
STEP = "s = 'é'\ntotal += loss\n".encode("latin-1").join([b"# coding: latin-1\n", b""])


@pytest.fixture
def wanted(edit):
    return [
        edit("set_keyword", 2, "data/load.py", call="DataLoader", keyword="num_workers", value="4"),
        edit("detach", 3, "step.py", text="total += loss"),
        edit("drop_statement", 3, "./data/load.py", call="empty_cache"),
    ]


@pytest.fixture
def files():
    return {"data/load.py": LOADER, "step.py": STEP}


def test_what_cannot_be_made_is_refused_and_the_rest_goes_on(wanted, files, edit):
    others = [
        edit("set_keyword", 2, "data/load.py", call="DataLoader", keyword="num_workers", value="8"),
        edit("set_keyword", 2, "data/load.py", call="Loader", keyword="num_workers", value="8"),
        edit("detach", 3, "absent.py"),
        edit("detach", 3, "/abs/step.py"),
        edit("detach", 3, "../step.py"),
        edit("detach", 3, "a/../../other_step.py"),
    ]
    made = plan([*wanted, *others], lambda path: files.get(path) if "step" not in path else STEP)
    reasons = {(one.site.file, one.call): reason for one, reason in made.refused}
    assert made.files == plan(wanted, files.get).files
    assert len(made.refused) == len(others)
    assert "something else of `num_workers`" in reasons["data/load.py", "DataLoader"]
    assert "no call of `Loader`" in reasons["data/load.py", "Loader"]
    assert "cannot be read" in reasons["absent.py", ""]
    for path in ("/abs/step.py", "../step.py", "a/../../other_step.py"):
        assert "outside" in reasons[path, ""]


@pytest.fixture
def root(tmp_path, files):
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


def test_write_replaces_the_files_and_keeps_their_mode(wanted, root):
    (root / "step.py").chmod(0o750)
    made = plan(wanted, lambda path: (root / path).read_bytes())
    write(made, root)
    assert {file.path: (root / file.path).read_bytes() for file in made.files} == {
        file.path: file.after for file in made.files
    }
    assert stat.S_IMODE((root / "step.py").stat().st_mode) == 0o750
    assert sorted(path.name for path in root.rglob("*")) == ["data", "load.py", "step.py"]


def test_write_follows_a_link_that_stays_inside(wanted, root):
    (root / "step.py").rename(root / "real.py")
    (root / "step.py").symlink_to("real.py")
    write(plan(wanted, lambda path: (root / path).read_bytes()), root)
    assert (root / "step.py").is_symlink()
    assert b"detach" in (root / "real.py").read_bytes()


def test_write_touches_nothing_if_one_file_has_changed(wanted, root):
    made = plan(wanted, lambda path: (root / path).read_bytes())
    (root / "step.py").write_bytes(STEP + b"\n")
    with pytest.raises(Refused, match=r"step\.py has changed"):
        write(made, root)
    assert (root / "data/load.py").read_bytes() == LOADER


def test_write_refuses_a_file_that_is_gone(wanted, root):
    made = plan(wanted, lambda path: (root / path).read_bytes())
    (root / "step.py").unlink()
    with pytest.raises(Refused, match="cannot be read"):
        write(made, root)


@pytest.mark.parametrize(
    "path", ["../out.py", "data/../../out.py", "{outside}", "link.py", "folder/out.py"]
)
def test_write_never_leaves_the_root(path, root, tmp_path_factory):
    outside = root.parent / "out.py"
    outside.write_bytes(b"x")
    (root / "link.py").symlink_to(outside)
    (root / "folder").symlink_to(root.parent)
    made = Plan((PatchedFile(path.format(outside=outside), b"x", b"y", ()),))
    with pytest.raises(Refused, match="outside"):
        write(made, root)
    assert outside.read_bytes() == b"x"


def test_a_failed_write_leaves_the_file_and_no_rubbish(wanted, root, monkeypatch):
    made = plan(wanted[1:2], lambda path: (root / path).read_bytes())

    def fail(*_args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write(made, root)
    assert (root / "step.py").read_bytes() == STEP
    assert sorted(os.listdir(root)) == ["data", "step.py"]


@pytest.mark.parametrize(("file", "refused"), [("In[2]", True), ("In[2].py", False)])
def test_a_notebooks_cell_is_no_file_to_patch(file, refused):
    wanted = Edit(Site(file, 3, "", ""), "drop_statement", "empty_cache")
    made = plan([wanted], lambda _: LOADER)
    assert bool(made.refused) is refused and bool(made.files) is not refused
