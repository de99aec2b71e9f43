"""Where to set a keyword of a call: in the call, or in the configuration file that its value came from."""

from __future__ import annotations

import ast
from typing import Any

from auditor.evidence import Configs, Source
from auditor.model import Edit, Site


def place_of(source: Source, configs: Configs, site: Site | None, call: str, keyword: str, *, ran: object) -> Any:
    """Hint for :func:`edit_at`: the setting that the value came from, True where the call itself says it, else None."""
    if site is None:
        return None
    written = source.argument(site, call, keyword)
    if written is None or isinstance(written, ast.Constant):
        return True
    return configs.behind(written, ran)


def edit_at(place: Any, edit: Edit) -> tuple[Edit, ...]:
    """The edit, moved to the configuration file where the value came from one; none where it came from elsewhere."""
    if place is None:
        return ()
    if place is True:
        return (edit,)
    return (Edit(place.site, "set_value", keyword=place.keyword, value=edit.value, safe=edit.safe, reason=edit.reason),)
