"""Where a finding is: a place in the user's source, and the parts of a joined finding."""

import re
from dataclasses import dataclass

from auditor.model.what_if import Change


@dataclass(frozen=True)
class Site:
    """One place in the user's source.

    ``file`` is relative to the working directory of the run when it lies below it, else absolute;
    ``line`` is 1-based; ``text`` is that line as it stood when the run was recorded, stripped.
    """

    file: str
    line: int
    function: str = ""
    text: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """File and line: what sites of one line share, whatever function they are in."""
        return self.file, self.line

    def __str__(self) -> str:
        """For people: of an installed package from its name on."""
        file = re.sub("^.*/(site|dist)-packages/", "", self.file)
        return f"{file}:{self.line}"


@dataclass(frozen=True)
class FoundAt:
    """One place of a finding that joins several: a line, or one expression of a line (``text`` as
    it is written).

    ``per_step``, ``lost_us_per_step`` and ``lost_bytes`` are its part of the finding's; ``code``
    and ``key`` are those that it would have alone. A rule fills what it knows; the engine adds code
    and key.
    """

    site: Site
    text: str = ""
    per_step: float = 0.0
    lost_us_per_step: float | None = None
    lost_bytes: int | None = None
    code: str = ""
    key: str = ""
    changes: tuple[Change, ...] = ()
    """What a replay of the trace leaves out to price it; never written to the report."""
