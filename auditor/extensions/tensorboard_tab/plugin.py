"""The tab as TensorBoard finds it: the entry point ``tensorboard_plugins`` names
:class:`AuditPlugin`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.plugins import base_plugin

from .pages import Pages
from .runs import runs_in


class AuditPlugin(base_plugin.TBPlugin):  # type: ignore[misc,unused-ignore]
    """Runs of ``audit`` below the log directory: their reports and their traces."""

    plugin_name = "audit"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._root = Path(context.logdir) if context.logdir else None

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """One application a route."""
        if self._root is None:
            return {}
        pages = Pages(self._root)
        return {f"/{route}": functools.partial(pages.answer, route) for route in pages.routes}

    def is_active(self) -> bool:
        """True if there is a run to show."""
        return self._root is not None and bool(runs_in(self._root))

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """The tab's name and its script."""
        return base_plugin.FrontendMetadata(
            es_module_path="/tab.js", tab_name="Audit", disable_reload=True
        )
