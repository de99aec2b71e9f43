"""Renderers: each is a function of one frozen ``Report``, found by name and loaded on demand."""

import importlib
from typing import Protocol

from auditor.model import Report


class Renderer(Protocol):
    """One format. ``suffix`` is what its files end in; ``render`` reads only the report."""

    name: str
    suffix: str

    def render(self, report: Report) -> str | bytes:
        """The whole document. Must not fail on any report that ``as_json.load`` accepts."""
        ...


# name -> module and class: a format is imported on first use.
_HOMES = {
    "terminal": ("terminal", "Terminal"),
    "json": ("as_json", "Json"),
    "html": ("html", "Html"),
    "sarif": ("sarif", "Sarif"),
    "junit": ("junit", "Junit"),
    "github": ("github", "Github"),
    "codequality": ("code_quality", "CodeQuality"),
    "markdown": ("markdown", "Markdown"),
    "agent": ("agent", "Agent"),
}

RENDERERS: tuple[str, ...] = tuple(_HOMES)
"""Names of all formats; ``--format`` offers all but html, which is always written."""


def renderer(name: str) -> Renderer:
    """The renderer of that name, by its defaults. Raises ``ValueError`` for an unknown name."""
    if name not in _HOMES:
        raise ValueError(
            f"there is no report format {name!r}; known formats: {', '.join(RENDERERS)}"
        )
    module, cls = _HOMES[name]
    made: Renderer = getattr(importlib.import_module(f"{__name__}.{module}"), cls)()
    return made
