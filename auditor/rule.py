"""What a rule is: one frozen dataclass with a manual page, whose ``detect`` asks for evidence by
naming it.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, cast

from auditor.model import Finding, Remedy, Severity

FAMILIES = tuple("SYNC DATA GRAPH MEM NUM AMP CFG OPT CKPT KERN DIST TIME WASTE COMP TRAIN".split())
"""Families of the codes of our rules, in the order of the manual."""


class NotLooked(Exception):
    """Raised by ``detect`` (or a table) if the recording cannot answer: *skipped*, and why."""


def knob(default: Any, help: str) -> Any:  # noqa: A002 - reads as dataclasses.field does
    """A threshold under ``[tool.audit.rules.CODE]``; ``help`` says its unit and its origin."""
    return field(default=default, metadata={"help": help})


SEE = re.compile(r"\{see:([A-Z0-9,]+)\}")
"""Where a message points to other findings: the engine puts their codes there."""


def see(*codes: str) -> str:
    """Behind words about what other rules report: `` (DATA007)`` where the report has such
    findings, nothing where it has none.

    ``codes`` are rules or families. A message names other codes in no other way.
    """
    return f"{{see:{','.join(codes)}}}"


@dataclass(frozen=True)
class Rule:
    """Base of all rules. A subclass gives ``code``, ``severity``, ``since``, a manual page,
    ``detect`` and maybe ``advice`` or ``remedy``.
    """

    code: ClassVar[str]
    severity: ClassVar[Severity]
    since: ClassVar[str]
    rehearsed: ClassVar[bool] = False
    """True if a run on a CPU cannot decide this rule and a rehearsal of the GPU path can."""
    everywhere: ClassVar[bool] = False
    """True of a rehearsed rule if what a run on a CPU finds is true of the GPU path too (a schedule
    in epochs, a NaN that is not half precision's): a rehearsal, which has fewer steps, adds lines
    and takes none back."""
    native: ClassVar[bool] = False
    """True if torch's own code for the device, run on the null device, tells it better than the
    shadow: the real allocator's bytes and history."""

    cause: ClassVar[str] = ""
    """What rules that find the same in a statement share: one finding. Empty: its own code."""
    leads: ClassVar[int] = 0
    """Of rules with one cause, equally severe, the lowest number gives code and message."""
    follows_at_line: ClassVar[str] = ""
    """Code of a rule whose finding at the line is this rule's cause: its advice mends both."""
    advice: ClassVar[str] = ""
    """What to do, where that is the same for every finding; else a finding brings its ``remedy``."""

    # The parameters of detect are the evidence it needs: the engine reads them off the signature.
    detect: ClassVar[Callable[..., Iterator[Finding]]]

    # The same question asked of a trace that stands alone; None if a trace cannot tell. Rules
    # that only a trace answers need no second method: their detect() names trace tables.
    in_trace: ClassVar[Callable[..., Iterator[Finding]] | None] = None

    # The same for a memory snapshot that stands alone.
    in_snapshot: ClassVar[Callable[..., Iterator[Finding]] | None] = None

    # The same for saved checkpoints. Rules that only checkpoints answer need no second method:
    # their detect() names them.
    in_checkpoint: ClassVar[Callable[..., Iterator[Finding]] | None] = None

    def remedy(self, finding: Finding) -> Remedy | None:
        """What to do about a finding: what ``detect`` said of it, else ``advice``; else None."""
        return finding.remedy or (Remedy(self.advice) if self.advice else None)

    def tells_growth(self, size: float) -> bool:
        """Whether ``size`` bytes by which the host's memory grew over a pass would be told."""
        return size > 0

    @classmethod
    def title(cls) -> str:
        """First paragraph of the docstring: the defect, on one line, without a full stop."""
        heading = (cls.__doc__ or "").strip().partition("\n\n")[0]
        return " ".join(heading.split()).rstrip(".") if heading else cls.__name__

    @classmethod
    def manual(cls) -> str:
        """The sections of the manual page as Markdown: those of ``manual/CODE.md`` beside the
        rule's module, else what follows the first paragraph of its docstring.
        """
        path = os.path.join(os.path.dirname(inspect.getfile(cls)), "manual", f"{cls.code}.md")
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                return file.read().partition("\n")[2].strip()
        return inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[2].strip()

    @classmethod
    def name(cls) -> str:
        """Class name in words joined by hyphens: ``scalar-read-every-step``."""
        words = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
        return re.sub(words, "-", cls.__name__).lower()

    @classmethod
    def family(cls) -> str:
        """The letters of the code: ``SYNC``."""
        return cls.code.rstrip("0123456789")

    @classmethod
    def knobs(cls) -> dict[str, tuple[Any, str]]:
        """Knobs by name: default value and help text."""
        return {
            f.name: (f.default, cast("str", f.metadata["help"]))
            for f in fields(cls)
            if "help" in f.metadata
        }
