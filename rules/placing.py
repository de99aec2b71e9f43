"""What rules that tell of several lines have in common."""

from __future__ import annotations

from auditor.evidence.source.statements import shorten
from auditor.model import FoundAt, Site


def places_of(*sites: Site | None) -> tuple[FoundAt, ...]:
    """The lines that are known, in their order; empty where they are one."""
    known = {site.place: site for site in sites if site is not None}
    if len(known) < 2:
        return ()
    return tuple(FoundAt(known[line], shorten(known[line].text)) for line in sorted(known))
