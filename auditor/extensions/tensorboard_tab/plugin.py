"""The tab for TensorBoard: the entry point ``tensorboard_plugins`` names :class:`AuditPlugin`."""

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorboard.plugins import base_plugin

from .pages import Pages
from .runs import RunFolder, runs_in

_NAMED = re.compile(r"([^:/]*):(?!//)(.+)")
"""A folder of ``--logdir_spec`` with the name that it is shown by."""


class _Several(Pages):
    """The runs of ``--logdir_spec A:FOLDER,B:FOLDER``, each below its name."""

    def __init__(self, specification: str) -> None:
        super().__init__(Path())
        self._named = [
            (named[1], Path(named[2])) if (named := _NAMED.fullmatch(each)) else ("", Path(each))
            for each in specification.split(",")
        ]

    def runs(self) -> tuple[RunFolder, ...]:
        return tuple(
            replace(run, name=f"{name}/{run.name}" if name else run.name)
            for name, folder in self._named
            for run in runs_in(folder)
        )


class AuditPlugin(base_plugin.TBPlugin):  # type: ignore[misc,unused-ignore]
    """Runs of ``audit`` below the log directory: their reports and their traces."""

    plugin_name = "audit"

    def __init__(self, context: base_plugin.TBContext) -> None:
        specification = getattr(context.flags, "logdir_spec", "")
        self._pages = (
            Pages(Path(context.logdir))
            if context.logdir
            else _Several(specification)
            if specification
            else None
        )

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        """One application a route."""
        if self._pages is None:
            return {}
        answer = self._pages.answer
        return {f"/{route}": functools.partial(answer, route) for route in self._pages.routes}

    def is_active(self) -> bool:
        """True if there is a run to show."""
        return self._pages is not None and bool(self._pages.runs())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """The tab's name and its script."""
        return base_plugin.FrontendMetadata(
            es_module_path="/tab.js", tab_name="Audit", disable_reload=True
        )
