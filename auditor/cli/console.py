"""The one way to the terminal: every text that may be a stranger's leaves through here, and a
broken stream loses no result.

Names of tensors, files and functions come from recordings, traces, checkpoints and reports of
anybody. What is said here cannot steer a terminal, forge a line of ours, or be taken for a command
by a CI system that reads what jobs print.
"""

import os
import sys
from typing import TextIO

from auditor.errors import AuditProblem
from auditor.judging import catalogue

UNWRITTEN: list[str] = []
"""Why stdout took nothing more, empty while it does."""


def say(line: str, *, err: bool = False) -> None:
    r"""Write one line: line feeds in it are shown as ``\n``, control characters as escapes.

    A stream that is gone stops nothing: results are in files. What of stdout could not be written
    is :data:`UNWRITTEN`, and the command then ends with exit code 2; a reader that went away
    (``| head``) has what it wanted.
    """
    text = catalogue.reports("text")
    _write(text.inert(text.visible(line).replace("\n", "\\n")) + "\n", err=err)


def show(block: str, *, err: bool = False) -> None:
    """Write several lines as they are, without what steers a terminal; else as :func:`say`."""
    text = catalogue.reports("text")
    _write(text.inert(text.visible(block)) + "\n", err=err)


def styled(block: str, *, err: bool = False) -> None:
    """Write what a renderer made: its texts are made visible already, and its own colours stay."""
    _write(catalogue.reports("text").inert(block), err=err)


def hand_over(data: str | bytes, *, form: str = "") -> None:
    """Write data that is the command's whole result to stdout: byte for byte, or as harmless text
    of a ``form``.

    ``json`` and its like keep their meaning: what a terminal or a CI system would obey is escaped
    as JSON does. ``github`` is made of commands, whose texts its renderer escapes. A patch has no
    form: git must find each byte of it. Raises :class:`AuditProblem` if it cannot be written; a
    reader that went away (``| head``) is no problem.
    """
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    if form:
        raw = (
            _harmless(raw.decode("utf-8", "replace"), form).encode("utf-8", "replace").rstrip(b"\n")
            + b"\n"
        )
    try:
        sys.stdout.flush()
        buffer = getattr(sys.stdout, "buffer", None)
        if buffer is None:
            sys.stdout.write(raw.decode("utf-8", "replace"))
        else:
            buffer.write(raw)
        sys.stdout.flush()
    except BrokenPipeError:
        to_nowhere(sys.stdout)
    except (OSError, ValueError) as error:
        to_nowhere(sys.stdout)
        raise AuditProblem(
            f"stdout cannot be written: {getattr(error, 'strerror', None) or error}"
        ) from None


def _harmless(text: str, form: str) -> str:
    reports = catalogue.reports("text")
    if form in ("json", "sarif", "codequality"):
        return str(reports.escaped_json(text))
    if form == "github":
        return str(reports.unmarked(text))
    return str(reports.inert(text if form == "terminal" else reports.visible(text)))


def secure_streams() -> None:
    """Open what a caller closed (``>&-``): else the next file opened would be stdout."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it lives as long as the process


def _write(text: str, *, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        to_nowhere(stream)
    except (OSError, ValueError) as error:
        to_nowhere(stream)
        if not err:
            UNWRITTEN.append(getattr(error, "strerror", None) or str(error))


def to_nowhere(stream: TextIO) -> None:
    """What is still buffered would be tried again, and fail, as the interpreter ends."""
    try:
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    except (OSError, ValueError):
        return
