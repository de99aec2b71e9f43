"""Who calls a helper of the program's."""

from __future__ import annotations

import ast

from auditor.evidence.source.files import Source
from auditor.model import Site

MOST = 3
"""Callers that are named."""


def callers(source: Source, site: Site) -> tuple[Site, ...]:
    """Lines that call the function around a line by its own name, or by ``self`` in its file; none
    where several functions have the name, or it runs the backward: then it is no helper.
    """
    index = source.index(site.file)
    function = index.scope_at(site.line)
    if function is None or isinstance(function, ast.Module):
        return ()
    named = [source.index(file).functions_named.get(function.name, ()) for file in source.texts]
    trains = any(function in index.around(call.lineno) for call in index.calls.get("backward", ()))
    if sum(map(len, named)) != 1 or trains:
        return ()
    return tuple(
        source.site_of(file, call)
        for file in source.texts
        for call in source.index(file).calls.get(function.name, ())
        if _is_its_own(call.func, here=file == site.file)
    )


def _is_its_own(callee: ast.expr, *, here: bool) -> bool:
    if isinstance(callee, ast.Attribute):
        return here and isinstance(callee.value, ast.Name) and callee.value.id == "self"
    return True


def callers_named(source: Source, site: Site) -> tuple[tuple[str, str], ...]:
    """The same as a fact of a finding; none where nobody is known."""
    found = callers(source, site)
    if not found:
        return ()
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return (("its function is called at", ", ".join(map(str, found[:MOST])) + more),)
