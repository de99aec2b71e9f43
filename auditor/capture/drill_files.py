"""Checkpoints of a drill: what each save held, what was loaded, and nothing of the user's overwritten for good."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from auditor.capture.fingerprint import NAMED, finite, tensors_by_path
from auditor.capture.patching import Patches

WRITES = os.O_WRONLY | os.O_RDWR


class Files:
    """Watches ``torch.save`` and ``torch.load``, under whatever name the user has them.

    A drill runs in a private copy of the working directory whose large files are links: a link is cut before anything is
    written through it. What a save outside that copy replaces is kept in ``folder/outside``, and put back by the parent.
    """

    def __init__(self, folder: Path, tell: Callable[[dict[str, Any]], None]) -> None:
        self._folder = folder / "outside"
        self._tell = tell
        self._here = Path.cwd().resolve()
        self._awake = False

    def install(self, patches: Patches) -> None:
        """Begin; ``patches`` undoes it (an audit hook cannot be removed: it sleeps from then on)."""
        patches.code(torch.save, self._save)  # type: ignore[arg-type]  # a plain function
        patches.code(torch.load, self._load)  # type: ignore[arg-type]
        sys.addaudithook(self._opened)
        self._awake = True
        patches.on_undo(self._sleep)

    def _sleep(self) -> None:
        self._awake = False

    def _save(self, original: Callable[..., Any], obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        path = _path_of(f)
        if path is None:
            return original(obj, f, *args, **kwargs)
        kept = self._keep(path)
        result = original(obj, f, *args, **kwargs)
        with contextlib.suppress(Exception):  # an object of the user's that answers in its own way
            found = list(tensors_by_path(obj))
            bad = [name for name, tensor in found if not finite(tensor)]
            row = {"what": "save", "path": self._shown(path), "tensors": len(found), "bad": bad[:NAMED], "n": len(bad)}
            self._tell({**row, "file": str(path), "outside": kept})
        return result

    def _load(self, original: Callable[..., Any], f: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(f, *args, **kwargs)
        path = _path_of(f)
        if path is not None:
            self._tell({"what": "load", "path": self._shown(path)})
        return result

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._here)) if path.is_relative_to(self._here) else str(path)

    def _keep(self, path: Path) -> str | None:
        """Where the file is kept that a save outside will replace; ``""`` if there is none, None for a path inside."""
        if path.is_relative_to(self._here):
            if path.is_symlink():
                path.unlink()
            return None
        if not path.is_file():
            return ""
        self._folder.mkdir(exist_ok=True)
        kept = self._folder / f"{len(list(self._folder.iterdir()))}-{path.name}"
        shutil.copy2(path, kept)
        return str(kept)

    def _opened(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._awake or event != "open" or not isinstance(args[0], (str, os.PathLike)):
            return
        flags = args[2] if isinstance(args[2], int) else 0
        if not flags & WRITES:
            return
        path = _path_of(args[0])
        if path is not None and path.is_symlink() and path.is_relative_to(self._here):
            original = path.resolve()
            path.unlink()
            if not flags & os.O_TRUNC and original.is_file():
                shutil.copyfile(original, path)


def _path_of(f: Any) -> Path | None:
    """Where the file really lies that was given to ``torch.save`` (links of its folder followed); None for a buffer."""
    name = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return None
    folder, file = os.path.split(os.path.abspath(os.fsdecode(name)))
    return Path(os.path.realpath(folder), file)
