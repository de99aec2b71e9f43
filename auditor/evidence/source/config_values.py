"""The configuration files that the target read: which of their values reached a call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.syntax.config_files import (
    DOCUMENTS,
    SCRIPTS,
    UnreadableConfig,
    Where,
    read_document,
    suffix_of,
    values_in,
)

ALLOCATOR = re.compile(r"\b(PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF)=")


@dataclass(frozen=True)
class Setting:
    """One value of a configuration file. ``keyword`` is its place as in an ``Edit``."""

    site: Site
    where: Where
    value: object

    @property
    def keyword(self) -> str:
        """Keys and positions as a JSON list."""
        return json.dumps(self.where)


@dataclass(frozen=True)
class Configs(Table):
    """Every value of the documents that the target opened, and lines that set the allocator."""

    settings: tuple[Setting, ...] = ()
    allocator: tuple[Setting, ...] = ()
    """Lines of shell scripts and ``.env`` files; ``where`` is the variable's name."""

    @classmethod
    def build(cls, evidence: Evidence) -> Configs:
        """From the stored copies; a file that does not parse is left out."""
        settings: list[Setting] = []
        allocator: list[Setting] = []
        for name in evidence.recording.manifest.get("configs") or ():
            file, raw = (
                evidence.recording.relative(str(name)),
                evidence.recording.source_bytes(str(name)),
            )
            text = (
                (raw or b"")
                .decode("utf-8-sig", "replace")
                .replace("\r\n", "\n")
                .replace("\r", "\n")
            )
            if suffix_of(file) in DOCUMENTS:
                settings += _settings(file, text)
            elif suffix_of(file) in SCRIPTS:
                allocator += [
                    Setting(Site(file, number, "", row.strip()), (found[1],), row)
                    for number, row in enumerate(text.split("\n"), 1)
                    if (found := ALLOCATOR.search(row))
                ]
        return cls(tuple(settings), tuple(allocator))


def _settings(file: str, text: str) -> Iterator[Setting]:
    try:
        data = read_document(text, suffix_of(file))
    except UnreadableConfig:
        return
    lines = text.split("\n")
    for where, value in values_in(data):
        if where and isinstance(value, (bool, int)):
            line = next(
                (
                    n
                    for n, row in enumerate(lines, 1)
                    if re.search(rf"\b{re.escape(str(where[-1]))}\b", row)
                ),
                0,
            )
            if line:
                yield Setting(Site(file, line, "", lines[line - 1].strip()), where, value)
