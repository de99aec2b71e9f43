"""A git repository to apply patches in, and short ways to say an edit."""

import os
import subprocess

import pytest

from auditor.model import Edit, Site


def make_edit(action, line=1, file="trainer.py", text="", **more):
    return Edit(Site(file, line, text=text), action, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def edit():
    return make_edit


class Repository:
    """Runs git in a folder of its own, untouched by the user's configuration."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "-q")

    def git(self, *words, stdin=b"", cwd=None):
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(
            ["git", *words],
            input=stdin,
            cwd=cwd or self.folder,
            capture_output=True,
            env=env,
            check=False,
        )

    def put(self, path, content):
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def expect_applies(self, diff, after, cwd=None):
        """``git apply --check`` takes the diff, and ``git apply`` makes exactly these files."""
        for words in (("apply", "--check", "-"), ("apply", "-")):
            done = self.git(*words, stdin=diff, cwd=cwd)
            assert done.returncode == 0, (
                done.stderr.decode("utf-8", "replace")[-500:],
                diff[:2000],
            )
        for path, content in after.items():
            assert (self.folder / path).read_bytes() == content, path


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("repository"))
