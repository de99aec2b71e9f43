"""Checkpoints that were loaded in part: the optimizer's state without its scheduler's, or the other
way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import PartialResumeRow


@dataclass(frozen=True)
class PartialResume:
    """``site`` loaded one state of a file that ``file`` read; the other, which lies in it under
    ``key``, was not loaded: ``left_out`` says which, ``owner`` is the class of what was left as it
    was.

    ``saved`` and ``now`` are a scheduler's ``last_epoch`` in the file and at the first step.
    """

    site: Site
    file: Site
    left_out: str
    key: str
    owner: str
    saved: int = 0
    now: int = 0


@dataclass(frozen=True)
class PartialResumes(Table):
    """All of them; empty where none were."""

    parts: ClassVar[tuple[str, ...]] = ("resumes",)

    each: tuple[PartialResume, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> PartialResumes:
        """One for each line that loads."""
        site = evidence.recording.site
        rows = {(r.at, r.left_out): r for r in reversed(rows_of(evidence, PartialResumeRow))}
        return cls(
            tuple(
                PartialResume(
                    site(r.at), site(r.file_at), r.left_out, r.key, r.owner, r.saved, r.now
                )
                for r in reversed(rows.values())
            )
        )
