"""A git repository to apply patches in, and short ways to say an edit."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.model import Edit, Site


def make_edit(
    action: str, line: int = 1, file: str = "trainer.py", text: str = "", **more: str
) -> Edit:
    return Edit(Site(file, line, text=text), action, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def edit() -> Callable[..., Edit]:
    return make_edit


class Repository:
    """Runs git in a folder of its own, untouched by the user's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q")

    def git(
        self, *words: str, stdin: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1"}
        return subprocess.run(
            ["git", *words],
            input=stdin,
            cwd=cwd or self.folder,
            capture_output=True,
            env=env,
            check=False,
        )

    def put(self, path: str, content: bytes) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def expect_applies(self, diff: bytes, after: dict[str, bytes], cwd: Path | None = None) -> None:
        """``git apply --check`` accepts the diff, and ``git apply`` makes exactly these files of
        it.
        """
        for words in (("apply", "--check", "-"), ("apply", "-")):
            done = self.git(*words, stdin=diff, cwd=cwd)
            assert done.returncode == 0, (
                done.stderr.decode("utf-8", "replace")[-500:],
                diff[:2000],
            )
        for path, content in after.items():
            assert (self.folder / path).read_bytes() == content, path


@pytest.fixture(scope="session")
def repository(tmp_path_factory) -> Repository:
    return Repository(tmp_path_factory.mktemp("repository"))
