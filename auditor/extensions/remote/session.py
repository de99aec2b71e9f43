"""One command on another machine: an archive goes there, the command runs in it, an archive comes
back.

All of it goes through one process, ``ssh`` or ``srun``, so that a password is asked for once: its
standard input carries what is sent and then stays open, its standard output what comes back, its
standard error what is said meanwhile. ``there.sh`` is the other end.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from auditor import __version__
from auditor.cli import console
from auditor.errors import AuditProblem

if TYPE_CHECKING:
    from typing import Self

RETURNED_LIMIT = 4 << 30
"""Bytes that are taken from the other machine at most."""

LEAVE_S = 10.0
"""Seconds that ssh has to end once nothing is left to say."""

SSH = ("ssh", "-T", "-C", "-o", "ServerAliveInterval=15", "--")
"""Compressed, without a terminal; a host that does not answer for 45 s is lost."""


@dataclass(frozen=True)
class Host:
    """Another machine by the name that the user gave it, and the command that leads there."""

    name: str
    prefix: tuple[str, ...]

    def command(self, script: str) -> list[str]:
        """What runs ``script`` there. Ctrl-C in the terminal is ours to answer, not its."""
        there = ["sh", "-c", script]
        if self.prefix[0] == "ssh":  # it hands over one text, to whatever shell is the user's
            there = [shlex.join(["exec", *there])]
        return ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *self.prefix, *there]


def host_named(text: str) -> Host:
    """``HOST`` as ssh takes it, ``srun`` or ``srun:OPTIONS``. Raises :class:`AuditProblem` for what
    ssh would take for an option, and where the command is not installed.
    """
    kind, _, options = text.partition(":")
    if not text.isprintable() or not text.strip() or text.startswith("-"):
        raise AuditProblem(f"--on {text!r} names no host", "as in --on user@gpu1, or --on srun")
    try:
        slurm = ("srun", *shlex.split(options), "--ntasks=1")
    except ValueError as error:
        raise AuditProblem(f"--on {text}: {error}") from None
    host = Host(text, slurm if kind == "srun" else (*SSH, text))
    if shutil.which(host.prefix[0]) is None:
        raise AuditProblem(f"--on {text} needs {host.prefix[0]}, which is not installed here")
    return host


class Session:
    """An ``audit`` with ``words`` (for the shell there, quoted) on a host, in a private folder
    ``$home`` that goes with it.

    It runs in ``$here``, the folder ``name`` of that; ``wanted`` is what of the private folder comes
    back. ``python`` is the interpreter there; the ``audit`` on its PATH if that is empty. Use as a
    context: at its end nothing of it is left there.
    """

    def __init__(self, host: Host, python: str, words: str, name: str, wanted: str) -> None:
        self._name, self._prefix, self._wanted = host.name, host.prefix, wanted
        self._mark = secrets.token_hex(16)
        script = "\n".join(
            [
                f"mark={self._mark} python={shlex.quote(python)}",
                f"name={shlex.quote(name)} wanted={shlex.quote(wanted)}",
                f'audited() {{ exec $session "$@" {words}; }}',
                Path(__file__).with_name("there.sh").read_text(),
            ]
        )
        self._process = subprocess.Popen(
            host.command(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._input = cast("BinaryIO", self._process.stdin)
        self._output = cast("BinaryIO", self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._close()
            self._output.close()
            self._process.wait(LEAVE_S)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()

    def home(self) -> str:
        """The private folder. Raises :class:`AuditProblem` where there is no audit, or one of
        another version.
        """
        word, rest = self._said()
        if word == "lacks":
            raise AuditProblem(
                f"no audit on {self._name}",
                "install it there (pip install torch-step-audit), or name its Python with "
                "--on-python",
            )
        version, _, home = rest.partition(" ")
        if word != "ready" or not home.startswith("/"):
            raise AuditProblem(f"no folder for temporary files can be made on {self._name}")
        if version.split(".")[:2] != __version__.split(".")[:2]:
            raise AuditProblem(
                f"{self._name} has audit {version}, and this is {__version__}: their reports differ",
                "install the same version on both",
            )
        return home

    def send(self, pack: Callable[[tarfile.TarFile], None]) -> None:
        """Send what ``pack`` puts into an archive, of a format that every tar reads."""
        with tempfile.TemporaryFile(prefix="audit-") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
                pack(archive)
            size = file.tell()
            file.seek(0)
            try:
                self._input.write(b"%d\n" % size)
                shutil.copyfileobj(file, self._input)
                self._input.flush()
            except OSError:
                raise self._lost() from None

    def wait(self) -> int:
        """The exit code. Ctrl-C asks the audit there to end, and a second one does not wait for
        that.
        """
        try:
            word, code = self._said()
        except KeyboardInterrupt:
            ends = f"the audit on {self._name} ends first (once more ends at once)"
            console.say(f"audit: interrupted; {ends}", err=True)
            self._close()
            word, code = self._said()
        if word != "ended" or not code.isdecimal():
            raise self._lost()
        return int(code)

    def receive(self, folder: Path) -> None:
        """Write what is wanted below ``folder``, if there is anything. Raises
        :class:`AuditProblem` for anything but files and folders below it.
        """
        bounded = _Bounded(self._output)
        try:
            with tarfile.open(fileobj=cast("Any", bounded), mode="r|") as archive:
                for member in archive:
                    self._unpack(archive, member, folder)
        except tarfile.TarError as error:
            if bounded.taken:
                raise AuditProblem(f"what {self._name} sent is damaged: {error}") from None
        except (OSError, ValueError) as error:
            raise AuditProblem(f"what {self._name} sent cannot be kept: {error}") from None

    def _unpack(self, archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
        path = PurePosixPath(member.name)
        plain = member.isdir() or (member.isreg() and not member.issparse())
        if not plain or ".." in path.parts or not path.is_relative_to(self._wanted):
            raise AuditProblem(f"{self._name} sent {member.name!r}, which no audit writes")
        place, content = folder / path, archive.extractfile(member)
        place.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            place.mkdir(exist_ok=True)
        else:
            with place.open("xb") as file:
                shutil.copyfileobj(content, file)

    def _said(self) -> tuple[str, str]:
        """The next word of ``there.sh`` and what follows it; what a login prints is passed over."""
        begin = f"{self._mark} ".encode()
        while line := self._output.readline(1 << 16):
            if line.startswith(begin):
                word, _, rest = line[len(begin) :].decode("utf-8", "replace").strip().partition(" ")
                return word, rest
        raise self._lost()

    def _lost(self) -> AuditProblem:
        return AuditProblem(
            f"{self._name} cannot be reached, or the connection ended before the audit did",
            f"try: {shlex.join([*self._prefix, 'true'])}",
        )

    def _close(self) -> None:
        with suppress(OSError):
            self._input.close()


class _Bounded:
    """A stream of which no more than ``RETURNED_LIMIT`` bytes are read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.taken = 0

    def read(self, size: int) -> bytes:
        """Raises ``ValueError`` where there is more."""
        data = self._stream.read(size)
        self.taken += len(data)
        if self.taken > RETURNED_LIMIT:
            raise ValueError(f"it is more than {RETURNED_LIMIT >> 30} GiB")
        return data
