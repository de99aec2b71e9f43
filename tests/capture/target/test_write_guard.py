"""A program in a copy of its project tries to damage the original in every way."""

import json
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from auditor.capture import process
from auditor.runs import project_copy
from auditor.runs.plan import OUTSIDE, Plan
from auditor.runs.project_copy import ProjectCopy

ROOT = Path(__file__).resolve().parent.parent.parent.parent

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]]),
}

CHILD = """
import sys, json
from auditor.runs.plan import Copied
from auditor.capture.process import enter
enter(Copied(**json.loads(sys.argv[1])), "/audit")
exec(sys.argv[2])
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project whose every file is linked, beside a folder that it reaches as ``../beside``."""
    monkeypatch.setattr(project_copy, "FILE_LIMIT", 2)
    home = tmp_path / "home" / "project"
    for path in (
        home / "model.pt",
        home / "wandb" / "run" / "log.txt",
        home / "a.db",
        home.parent / "beside" / "x" / "best.pt",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's own")
    return home


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode("latin-1")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def ended(place: ProjectCopy, code: str, *, beside: bool = False) -> subprocess.CompletedProcess:
    """How a program in a copy ended."""
    copied = place.plan(Plan("t:s", (), 1, 0, "cpu", "", ())).copied
    assert copied is not None
    told = json.dumps(asdict(replace(copied, beside=beside)))
    words = [sys.executable, "-c", CHILD, told, textwrap.dedent(code)]
    return subprocess.run(
        words, cwd=place.folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


def run(project: Path, code: str, *, also: str = "") -> Path:
    """Run code in a copy, then ``also``; the original must be as it was afterwards."""
    before = contents(project.parent)
    with ProjectCopy(project) as place:
        for each in filter(None, (code, also)):
            done = ended(place, textwrap.dedent(each).format(project=project))
            assert done.returncode == 0, done.stderr
    assert contents(project.parent) == before
    return project


@pytest.mark.parametrize(
    "code",
    [
        "open('model.pt', 'w').write('x'); assert open('model.pt').read() == 'x'",
        "open('model.pt', 'a').write('x'); assert open('model.pt').read() == \"the user's ownx\"",
        "open(b'model.pt', 'r+').truncate(1); assert open('model.pt').read() == 't'",
        "import pathlib; pathlib.Path('model.pt').unlink()",
        "import os; os.truncate('model.pt', 0)",
        "import os; os.chmod('model.pt', 0o600); open('model.pt', 'w')",
        "import os; os.rename('model.pt', 'old.pt'); open('model.pt', 'x'); open('old.pt', 'w')",
        "import os; os.replace('model.pt', 'wandb/run/log.txt')",
        "import os; os.remove('wandb/run/log.txt'); os.rmdir('wandb/run')",
        "import os; os.makedirs('wandb/new/deep'); open('wandb/new/deep/x', 'w')",
        "import os; os.chdir('wandb'); open('run/log.txt', 'w')",
        "import shutil; shutil.rmtree('wandb')",
        "import shutil; shutil.rmtree('../beside')",
        "import shutil; shutil.copy('model.pt', '../beside/x/best.pt')",
        "open('../beside/x/best.pt', 'w'); open('../beside/y', 'w')",
        "import sqlite3; c = sqlite3.connect('new.db'); c.execute('create table t(x)'); c.commit()",
        (
            "import sqlite3; c = sqlite3.connect('wandb/new.db'); c.execute('create table t(x)'); "
            "c.commit()"
        ),
        """
        import mmap, os
        os.write(os.open('model.pt', os.O_WRONLY), b'x')
        os.write(os.open('wandb/run/new', os.O_CREAT | os.O_RDWR), b'x')
        with open('a.db', 'r+b') as file:
            mmap.mmap(file.fileno(), 0)[:3] = b'xyz'
        """,
        """
        import shutil
        shutil.move('model.pt', 'wandb/run/log.txt')
        shutil.copytree('wandb', '../beside', dirs_exist_ok=True)
        """,
        """
        import numpy
        numpy.memmap('model.pt', 'u1', 'r+')[:] = 7
        numpy.memmap('../beside/x/best.pt', 'u1', 'w+', shape=(9,))[:] = 7
        numpy.save(open('wandb/run/log.txt', 'wb'), numpy.ones(3))
        numpy.ones(3).tofile('a.db')
        """,
        """
        import subprocess as s
        s.run(['cp', 'a.db', 'model.pt'], check=True)
        s.run(['dd', 'if=/dev/null', 'of=run/log.txt'], cwd='wandb', check=True, stderr=s.DEVNULL)
        s.run('echo x >a.db; echo x >> ../beside/x/best.pt', shell=True, check=True)
        """,
        """
        import os
        os.system('rm -rf wandb ../beside; truncate -s 0 model.pt')
        os.spawnvp(os.P_WAIT, 'cp', ['cp', 'model.pt', 'a.db'])
        """,
        (
            "import multiprocessing as m; p = m.get_context('fork').Process(target=open, "
            "args=('model.pt', 'w')); p.start(); p.join()"
        ),
    ],
)
def test_links_are_cut_before_something_is_written_through_them(project, code):
    run(project, code)


@pytest.mark.parametrize(
    "code",
    [
        (
            "open('{project}/model.pt', 'w').write('x'); open('{project}/model.pt', "
            "'w').write('y'); "
            "open('{project}/new', 'w')"
        ),
        "import os; os.remove('{project}/model.pt')",
        "import os; os.replace('{project}/model.pt', '{project}/moved.pt')",
        "import os; os.makedirs('{project}/out/deep'); open('{project}/out/deep/log', 'w')",
        "import shutil; shutil.rmtree('{project}/wandb')",
        "import numpy as n; n.memmap('{project}/model.pt', 'u1', 'r+')[:] = 7",
        "import subprocess as s; s.run(['cp', 'a.db', '{project}/model.pt'], check=True)",
    ],
)
def test_what_is_done_to_the_original_by_its_path_is_undone(project, code):
    run(project, code)
    assert not (project / "out").exists()


def test_what_torch_writes_from_cpp_is_seen_too(project):
    elsewhere = project.parent / "beside" / "x" / "best.pt"
    code = f"""
        from torch import save
        import torch, pathlib
        save({{{{"x": torch.ones(2)}}}}, "model.pt")
        torch.save(torch.ones(2), f={str(elsewhere)!r})
        torch.save(torch.ones(2), pathlib.Path({str(elsewhere.with_name("new.pt"))!r}))
        torch.jit.save(torch.jit.script(torch.nn.ReLU()), "a.db")
        torch.jit.script(torch.nn.ReLU()).save("../beside/x/best.pt")
        with torch.profiler.profile() as profiler:
            torch.ones(2) + 1
        profiler.export_chrome_trace("wandb/run/log.txt")
        with torch.autograd.profiler.profile() as profiler:
            torch.ones(2) + 1
        profiler.export_chrome_trace(path={str(elsewhere.with_name("new.json"))!r})
        assert torch.load("model.pt")["x"].sum() == 2
    """
    run(project, code)


def test_safetensors_writes_from_rust(project):
    pytest.importorskip("safetensors")
    code = """
        from safetensors.torch import save_file
        import numpy, safetensors.numpy, torch
        save_file({{"x": torch.ones(2)}}, "model.pt")
        save_file({{"x": torch.ones(2)}}, filename="{project}/new.safetensors")
        safetensors.numpy.save_file({{"x": numpy.ones(2)}}, "wandb/run/log.txt")
    """
    run(project, code)
    assert not (project / "new.safetensors").exists()


@pytest.mark.parametrize(
    "name", ["real.db", "file:real.db?mode=rw", "file:{project}/real.db", "{project}/real.db"]
)
def test_sqlite_writes_from_c(project, name):
    with closing(sqlite3.connect(project / "real.db")) as data, data:
        data.execute("create table t(x)")
    code = f"""
        import sqlite3
        data = sqlite3.connect("{name}", uri=True)
        data.execute("insert into t values (1)")
        data.commit()
        assert data.execute("select x from t").fetchall() == [(1,)]
    """
    run(project, code)


def test_h5py_writes_from_c(project):
    h5py = pytest.importorskip("h5py")
    with h5py.File(project / "data.h5", "w") as data:
        data["x"] = [1, 2]
    code = """
        import h5py, os
        with h5py.File("data.h5") as data:
            assert list(data["x"]) == [1, 2]
        assert os.path.islink("data.h5")
        with h5py.File("data.h5", "r+") as data:
            data["y"] = list(data["x"])
        with h5py.File("model.pt", mode="w") as data:
            data["y"] = [3]
        h5py.File("{project}/data.h5", "a")["z"] = 1
    """
    run(project, code)


def test_two_runs_in_one_copy_are_undone_to_before_the_first(project):
    run(
        project,
        "open('{project}/model.pt', 'w').write('first')",
        also="open('{project}/model.pt', 'a').write('second')",
    )


@pytest.mark.parametrize(
    "code",
    [
        "open('{project}/model.pt', 'a')",
        "open('{project}/new', 'w')",
        "import os; os.remove('{project}/model.pt')",
        "import os; os.rename('{project}/wandb', '{project}/moved')",
        "import os; os.chdir('{project}'); open('model.pt', 'w')",
        "import os; os.makedirs('{project}/wandb', exist_ok=True); open('{project}/wandb/x', 'w')",
        "import shutil; shutil.rmtree('{project}/wandb')",
        "import sqlite3; sqlite3.connect('{project}/a.db')",
        "import subprocess as s; s.run(['cp', 'a.db', '{project}/model.pt'], check=True)",
        "import tempfile, os; os.replace(tempfile.mkstemp()[1], '{project}/model.pt')",
        """
        import os, time
        if not os.fork():
            open('{project}/model.pt', 'w')
        time.sleep(60)
        """,
    ],
)
def test_a_run_beside_another_ends_before_it_writes_outside_of_its_copy(project, code):
    before = contents(project.parent)
    with ProjectCopy(project) as place:
        done = ended(place, textwrap.dedent(code).format(project=project), beside=True)
        assert done.returncode == -9, done.stderr
        copied = place.plan(Plan("t:s", (), 1, 0, "cpu", "", ())).copied
        assert copied is not None and str(project) in Path(copied.kept, OUTSIDE).read_text()
    assert contents(project.parent) == before


def test_a_run_beside_another_writes_into_its_copy_and_what_it_made_itself(project):
    code = f"""
        import os, pathlib, shutil, subprocess, tempfile
        open('model.pt', 'a').write('x')
        shutil.rmtree('wandb')
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile(), tempfile.NamedTemporaryFile():
            pathlib.Path(folder, 'deep').mkdir()
            open(os.path.join(folder, 'deep', 'log'), 'w').close()
            subprocess.run(['cp', 'a.db', os.path.join(folder, 'deep', 'log')], check=True)
        os.makedirs({str(project)!r}, exist_ok=True)
        os.chdir({str(project)!r})
        open('model.pt').read()
        open(os.devnull, 'w').write('x')
    """
    before = contents(project.parent)
    with ProjectCopy(project) as place:
        done = ended(place, code, beside=True)
        assert done.returncode == 0, done.stderr
    assert contents(project.parent) == before


def test_nothing_is_cut_by_reading(project):
    run(
        project,
        "import os; open('model.pt').read(); os.listdir('wandb'); assert "
        "os.path.islink('model.pt') and os.path.islink('wandb')",
    )


def test_a_file_too_large_to_be_kept_is_not_overwritten(project):
    code = """
        from auditor.capture import process
        process.LARGE = 3
        try:
            open('{project}/model.pt', 'w')
        except PermissionError as problem:
            assert 'outside of the copy' in str(problem)
        else:
            raise SystemExit('it was overwritten')
        open('model.pt', 'r+').close()
        assert __import__('os').path.islink('model.pt')
    """
    run(project, code)


def test_processes_that_cut_the_same_links_at_once_do_not_stumble(project):
    code = """
        import os, time
        begin = time.time() + 0.2
        children = []
        for number in range(8):
            child = os.fork()
            if not child:
                time.sleep(max(0, begin - time.time()))
                open(f'wandb/run/{{number}}', 'w').close()
                open('model.pt', 'a').close()
                os._exit(0)
            children.append(child)
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    """
    for _ in range(3):
        run(project, code)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("file:a%20b.db?mode=rw", "a b.db"),
        (
            b"file:/x/real.db?mode=rw",
            "/x/real.db",
        ),  # what Python 3.10 tells of a name that is a str
        (Path("real.db"), Path("real.db")),
        (b"real.db", b"real.db"),
        (":memory:", ":memory:"),
        (7, 7),
    ],
)
def test_the_file_of_a_sqlite_database(name, file):
    assert process._database(name) == file
