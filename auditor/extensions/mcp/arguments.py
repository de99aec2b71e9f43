"""What a client may ask for: paths inside the working directory, and nothing that the command line
would take for an option.
"""

from __future__ import annotations

import re
from pathlib import Path

from auditor.cli import launch
from auditor.errors import AuditProblem

_CODES = re.compile(r"[A-Za-z]{2,12}[0-9]{0,3}(,[A-Za-z]{2,12}[0-9]{0,3})*")
_WORD = re.compile(r"[\w.+ ][\w.+ -]{0,80}")


def inside(root: Path, given: str) -> str:
    """A path that lies in ``root`` with links followed, as the command line takes it: relative to
    ``root``. Raises :class:`AuditProblem` for others, and where there is nothing.
    """
    home = root.resolve()
    try:
        place = (home / given).resolve()
        there = place.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, a circle of links
        raise AuditProblem(f"{given[:80]!r} is no path") from None
    if not place.is_relative_to(home):
        raise AuditProblem(f"{given[:200]} lies outside of the working directory {home}")
    if not given or not there:
        raise AuditProblem(f"{given[:200]!r} does not exist in {home}")
    found = str(place.relative_to(home))
    return f"./{found}" if found.startswith("-") else found


def target(root: Path, given: str) -> str:
    """A target: no option, no launcher, and its file inside ``root``. Raises :class:`AuditProblem`."""
    if not given.strip() or given.startswith("-"):
        raise AuditProblem(
            f"{given[:200]!r} is no target",
            "give package.module:callable, file.py:callable or file.py",
        )
    if launch.is_launcher(given):
        raise AuditProblem(
            f"{given[:80]} starts another program, which may lie anywhere",
            f"give the program itself, or run audit run -- {given[:80]} ... in a shell",
        )
    file = given.partition(":")[0]
    if "/" in file or "\\" in file or file.endswith(".py"):
        inside(root, file)
    return given


def codes(given: str) -> str:
    """Codes or families with commas; empty for all. Raises :class:`AuditProblem`."""
    plain = given.replace(" ", "")
    if plain and not _CODES.fullmatch(plain):
        raise AuditProblem(f"{given[:80]!r} are no codes", "write them as SYNC,MEM005")
    return plain.upper()


def word(given: str, what: str) -> str:
    """A plain word, such as the name of a GPU. Raises :class:`AuditProblem`."""
    if not _WORD.fullmatch(given):
        raise AuditProblem(f"{given[:80]!r} is no {what}")
    return given
