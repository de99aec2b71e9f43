"""A second machine for tests: commands called ssh and srun that run what they are given in another
folder with another environment, and a real sshd on this machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


@dataclass(frozen=True)
class Machine:
    """A host whose commands and temporary files lie in ``folder``, and how to reach it."""

    folder: Path
    path: Path

    @property
    def left(self) -> list[str]:
        """What lies in its folder for temporary files."""
        return sorted(each.name for each in (self.folder / "tmp").iterdir())

    def empties(self, seconds: float = 120.0) -> bool:
        """Whether that becomes empty."""
        until = time.monotonic() + seconds
        while self.left and time.monotonic() < until:
            time.sleep(0.2)
        return not self.left

    def install(self) -> None:
        """Put a command ``audit`` on its PATH."""
        script(self.folder / "bin" / "audit", f'exec {sys.executable} -m auditor "$@"')

    def start(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        """Begin an audit here that can reach it."""
        return subprocess.Popen(
            [sys.executable, "-m", "auditor", *words],
            cwd=cwd,
            env={**os.environ, "PATH": f"{self.path}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def audit(self, *words: str, cwd: Path) -> tuple[int, str, str]:
        """The same to its end: exit code, standard output, standard error."""
        process = self.start(*words, cwd=cwd)
        out, err = process.communicate(timeout=450)
        return process.returncode, out, err


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(body)}\n")
    path.chmod(0o755)


def machine(tmp_path: Path) -> Machine:
    """Reached by an ``ssh`` and an ``srun`` of our own. It greets, as many do."""
    folder = tmp_path / "host"
    (folder / "tmp").mkdir(parents=True)
    there = (
        f"cd {folder}; echo welcome to this machine; unset VIRTUAL_ENV\n"
        f"export PATH={folder}/bin:/usr/bin:/bin HOME={folder} SHELL=/bin/sh TMPDIR={folder}/tmp"
    )
    path = tmp_path / "path"
    script(path / "ssh", f'for last; do :; done\n{there}\nexec sh -c "$last"')
    script(
        path / "srun",
        f'while [ "${{1#-}}" != "$1" ]; do echo "$1" >> {folder}/options; shift; done\n{there}\n'
        'exec "$@"',
    )
    return Machine(folder, path)


@contextmanager
def sshd(tmp_path: Path) -> Iterator[Machine]:
    """Reached by the system's ssh as ``gpu1``: a server on this machine with keys of its own."""
    folder = tmp_path / "sshd"
    (folder / "tmp").mkdir(parents=True)
    for key in ("host", "mine"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True
        )
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "server").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/mine.pub\nStrictModes no\nUsePAM no\n"
        f"SetEnv TMPDIR={folder}/tmp PATH={folder}/bin:/usr/bin:/bin\n"
    )
    public = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public}\n")
    (folder / "client").write_text(
        f"Host refused\nPort 1\nHost gpu1\nIdentityFile {folder}/mine\n"
        f"Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {folder}/host\n"
        f"IdentitiesOnly yes\nUserKnownHostsFile {folder}/known\nStrictHostKeyChecking yes\n"
        "BatchMode yes\n"
    )
    path = tmp_path / "path"
    script(path / "ssh", f'exec {shutil.which("ssh")} -F {folder}/client "$@"')
    assert SSHD is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-f", str(folder / "server"), "-E", f"{folder}/log"])
    try:
        for _ in range(100):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield Machine(folder, path)
    finally:
        server.terminate()
        server.wait()
