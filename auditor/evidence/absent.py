"""Why evidence is missing, in a sentence: what a rule that is *skipped* says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from auditor.recordings.schema.run import LapseRow

if TYPE_CHECKING:
    from auditor.evidence.table import Evidence, Table

BROKEN_PROBE = "the probe "
"""How the reason begins of a rule that was skipped because a probe broke."""

ZEROS = "a null device computes nothing: values are zeros there and say nothing"
"""Why nothing is said of values that were read on one."""


def why_missing(evidence: Evidence, table: type[Table], parts: Sequence[str]) -> str:
    """Why the recording holds none of these parts of a table."""
    manifest = evidence.recording.manifest
    if evidence.bare:
        return f"a {evidence.bare} does not show it: audit run records it"
    outcome, shadow = manifest.get("outcome"), evidence.recording.device.shadow
    if outcome != "completed":
        return (
            f"the {'rehearsal' if shadow else 'run'} ended early ({outcome}), before this could be "
            "recorded"
        )
    if shadow and not table.of_rehearsals:
        return "only a run on the CPU or on a GPU records what this needs"
    known = (table.absent[part] for part in parts if part in table.absent)
    return next(known, f"the recording holds no {' and no '.join(parts)}")


def why_broken(evidence: Evidence, tables: Iterable[type[Table]]) -> str:
    """Why *nothing found* in these tables says nothing: a probe that writes for one of them failed.
    Empty if none did.
    """
    needed = {part for table in tables for part in table.parts}
    for name, error, parts in evidence.once(_lapses):
        if needed.intersection(parts):
            return f"{BROKEN_PROBE}{name!r} failed and did not see all of it ({error})"
    return ""


def _lapses(evidence: Evidence) -> list[tuple[str, str, list[str]]]:
    """Probes that failed and their parts. A killed process's manifest does not know of them."""
    probes = evidence.recording.manifest.get("probes", {}).items()
    rows = evidence.rows(LapseRow) if evidence.has(LapseRow.part) else []
    known = [(name, each.get("error", ""), each.get("parts", [])) for name, each in probes]
    return known + [(row.probe, row.error, row.parts) for row in rows]
