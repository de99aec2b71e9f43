"""Every backward of the step, the graphs it asked to keep, and whether anything walked them
again.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from types import FrameType

import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward, Walk, saved_bytes
from auditor.capture.instruments.call_keywords import keywords_given
from auditor.capture.instruments.torch_files import TORCH
from auditor.capture.instruments.user_frames import OWN
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import BackwardRow, ReusedRow

_MARK = "audit.kept"
"""Key in a node's metadata: which retained backward kept it last."""


_PASS_ON = frozenset(
    TORCH + os.path.join(*path)
    for path in (
        ("_tensor.py",),
        ("autograd", "__init__.py"),
        ("overrides.py",),
        ("utils", "_device.py"),
    )
)
"""Files of torch that hand on the caller's own flags. What another library asks for was the user's
idea only if he named it.
"""


class _Kept:
    """One retained backward. Its marks live in the nodes, so it dies when the last node that it
    kept is freed.
    """

    def __init__(self, at: int, *, capped: bool) -> None:
        self.at = at
        self.capped = (
            capped  # not every node could be marked: any later backward may have walked the rest
        )


class BackwardProbe(Probe):
    """Writes ``backward`` and ``reused``.

    A graph that was kept is recognised by marks in its nodes' metadata, which hold nothing of the
    graph alive. Where a walk is cut off at the cap, the graph counts as reused: a retention is
    called needless only when that is certain.
    """

    name = "backward"
    parts = ("backward", "reused")
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._live: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._rows: dict[tuple[int, bool, bool, bool], list[float]] = {}
        self._reused: Counter[tuple[int, int | None]] = Counter()
        self._held: dict[int, int | None] = {}
        self._told: set[int] = set()

    def start(self) -> None:
        """Watch the door."""
        self._rows.clear()
        self._reused.clear()
        for part in self.parts:
            self.context.writer.touch(part)
        BACKWARD_HOOKS.add(self)

    def stop(self) -> None:
        """Leave the door. Marks vanish with their graphs."""
        BACKWARD_HOOKS.remove(self)

    def backward_begins(self, call: Backward) -> None:
        """Look for marks of an earlier retained backward in the graph that is about to be
        walked.
        """
        if self._live:
            by = self.context.frames.here()
            for kept in self._reached(call.walked):
                self._reused[kept.at, by] += 1

    def backward_ends(self, call: Backward) -> None:
        """Count the call; where the user asked to keep its graph, mark it."""
        if call.nested or not self.context.in_step:
            return
        at = self.context.frames.here()
        if at is None:
            return
        retain = call.keep_graph and not call.create_graph and self._asked_by_user()
        totals = self._rows.setdefault(
            (at, retain, call.create_graph, torch.is_anomaly_enabled()), [0, 0.0]
        )
        totals[0] += 1
        totals[1] += call.us
        if retain and not call.failed:
            self._mark(call.walked, at)
            if at not in self._held:
                self._held[at] = saved_bytes(call.walked)

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, retain, create, anomaly), (n, us) in self._rows.items():
            row = BackwardRow(at=at, retain=retain, create=create, n=int(n), us=us, anomaly=anomaly)
            if retain and at not in self._told and self._held.get(at) is not None:
                row.held_bytes = self._held[at]
                self._told.add(at)
            self.context.add(row)
        for (kept_at, by), times in self._reused.items():
            self.context.add(ReusedRow(at=kept_at, by=by, n=times))
        self._rows.clear()
        self._reused.clear()

    def _mark(self, walked: Walk, at: int) -> None:
        kept = _Kept(at, capped=walked.capped)
        for node in walked.nodes:
            node.metadata[_MARK] = kept
        self._live.add(kept)

    def _reached(self, walked: Walk) -> set[_Kept]:
        live = set(self._live)
        found = {kept for kept in live if kept.capped or walked.capped}
        for node in walked.nodes:
            if len(found) == len(live):
                break
            kept = node.metadata.get(_MARK)
            if kept is not None:
                found.add(kept)
        return found

    def _asked_by_user(self) -> bool:
        """True if only torch's own entry points stand between the user's line and the engine, or
        the line names the flag.

        A framework hands on what it is given: ``self.manual_backward(loss, retain_graph=True)``.
        """
        frame: FrameType | None = sys._getframe(1)
        through_library = False
        while frame is not None:
            file = frame.f_code.co_filename
            if self.context.frames.is_user(file):
                return not through_library or "retain_graph" in keywords_given(frame)
            if file not in _PASS_ON and not file.startswith("<") and not file.startswith(OWN):
                through_library = True
            frame = frame.f_back
        return False
