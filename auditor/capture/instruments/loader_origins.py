"""Where the user's program makes each DataLoader."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any

from torch.utils.data import DataLoader

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import Frames


class LoaderOrigins:
    """Remembers it from :meth:`install` on, and keeps no loader alive. A loader
    that a framework builds from the user's, with its settings, is of the user's line.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._made_at: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._made_by_user: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, patches: Patches) -> None:
        """Watch the constructor, until these are undone."""
        make_loader = DataLoader.__init__

        @functools.wraps(make_loader)
        def loader_init(loader: Any, *args: Any, **kwargs: Any) -> None:
            make_loader(loader, *args, **kwargs)
            self._note(loader)

        patches.attribute(DataLoader, "__init__", loader_init)

    def of(self, loader: Any) -> int | None:
        """The line: a number in ``sites``; None where it is not known."""
        with contextlib.suppress(TypeError):  # a subclass may not be hashable
            return self._made_at.get(loader)
        return None

    def _note(self, loader: Any) -> None:
        # a subclass may not be hashable, or compare in its own way
        with contextlib.suppress(Exception):
            frame, library = self._frames.user_frame()
            if frame is not None and library is None:
                self._made_by_user.add(loader)
            known = self._rebuilt_from(loader) if library is not None else None
            self._made_at[loader] = (
                known if known is not None or frame is None else self._frames.number(frame, library)
            )

    def _rebuilt_from(self, loader: Any) -> int | None:
        """Where the user made the one loader over its dataset: frameworks build theirs from it."""
        sites = {
            self._made_at.get(each) for each in self._made_by_user if each.dataset is loader.dataset
        }
        return sites.pop() if len(sites) == 1 else None
