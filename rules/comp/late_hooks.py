"""Hooks that were registered on modules whose compiled code does not know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.rule import NotLooked

from .rows import LateHookRow


@dataclass(frozen=True)
class LateHook:
    """Hooks of one line, on a module of the class ``what``. Through ``steps`` of the timing pass
    they were registered, and were called in ``ran`` of these; ``eager_steps`` and ``eager_ran`` are
    the same with compiled functions held eager.

    ``again``: something was compiled between the first of them and the end of these passes.
    """

    site: Site
    what: str
    steps: int
    ran: int
    eager_steps: int
    eager_ran: int
    again: bool


@dataclass(frozen=True)
class LateHooks(Table):
    """Lines that registered hooks when something had been compiled, in the order of the sites."""

    parts: ClassVar[tuple[str, ...]] = ("late_hooks", "steps")

    each: tuple[LateHook, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LateHooks:
        """From the timing passes, compiled and held eager."""
        rows = {(row.at, row.pass_name): row for row in rows_of(evidence, LateHookRow)}
        if not any(name == "eager_held" for _, name in rows):
            raise NotLooked(
                "no hook of a lambda or inner function was registered after a compilation, and "
                "followed with compiled functions held eager"
            )
        lines = sorted({at for at, _ in rows})
        none = LateHookRow(at=0, what="")
        found = []
        for at in lines:
            quiet, eager = (rows.get((at, name), none) for name in ("quiet", "eager_held"))
            found.append(
                LateHook(
                    evidence.recording.site(at),
                    quiet.what,
                    quiet.steps,
                    quiet.ran,
                    eager.steps,
                    eager.ran,
                    quiet.again or eager.again,
                )
            )
        return cls(tuple(found))
