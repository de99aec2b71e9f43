"""Checkpoints of a drill: what each save held, and what was loaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.drill.state_digest import NAMED, finite, tensors_by_path
from auditor.recordings.schema import DrillLoadRow, DrillRow, DrillSaveRow


class Files:
    """Watches ``torch.save`` and ``torch.load``, under whatever name the user has them.

    What they overwrite is none of their business: a drill runs in a copy
    (``auditor/capture/target/write_guard.py``).
    """

    def __init__(self, tell: Callable[[DrillRow], None]) -> None:
        self._tell = tell
        self._here = Path.cwd().resolve()

    def install(self, patches: Patches) -> None:
        """Begin; ``patches`` undoes it."""
        patches.code(torch.save, self._save)  # type: ignore[arg-type]  # a plain function
        patches.code(torch.load, self._load)  # type: ignore[arg-type]

    def _save(
        self, original: Callable[..., Any], obj: Any, f: Any, *args: Any, **kwargs: Any
    ) -> Any:
        path = _path_of(f)
        if path is None:
            return original(obj, f, *args, **kwargs)
        result = original(obj, f, *args, **kwargs)
        with contextlib.suppress(Exception):  # an object of the user's that answers in its own way
            found = list(tensors_by_path(obj))
            bad = [name for name, tensor in found if not finite(tensor)]
            self._tell(
                DrillSaveRow(
                    path=self._shown(path), tensors=len(found), bad=bad[:NAMED], n=len(bad)
                )
            )
        return result

    def _load(self, original: Callable[..., Any], f: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(f, *args, **kwargs)
        path = _path_of(f)
        if path is not None:
            self._tell(DrillLoadRow(path=self._shown(path)))
        return result

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._here)) if path.is_relative_to(self._here) else str(path)


def _path_of(f: Any) -> Path | None:
    """Where the file really lies that was given to ``torch.save`` (links of its folder followed);
    None for a buffer.
    """
    name = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return None
    folder, file = os.path.split(os.path.abspath(os.fsdecode(name)))
    return Path(os.path.realpath(folder), file)
