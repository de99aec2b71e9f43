"""Every backward of the step, the graphs that it kept or made, and whether they were walked."""

import os
import sys
import weakref
from linecache import getline

import torch

from auditor.capture.instruments.autograd_graph import Backward, Node, Walk, node_of, saved_bytes
from auditor.capture.instruments.plain_tensor import TORCH
from auditor.capture.instruments.user_frames import OWN, outwards
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.tally import Counted
from auditor.recordings.schema.graph import BackwardRow, ReusedRow

_MARK = "audit.kept"
"""Key in a node's metadata: which retained backward kept it last."""

_MADE = "audit.gradient"
"""Metadata key of the node behind a gradient: the ``create_graph`` call that created it."""

_PASS_ON = frozenset(
    TORCH + path.replace("/", os.sep)
    for path in ("_tensor.py", "autograd/__init__.py", "overrides.py", "utils/_device.py")
)
"""Files of torch that hand on flags. Another library's are the user's if the line names them."""


class _Kept:
    """One retained backward. Its marks live in the nodes, so it dies with the last node kept."""

    def __init__(self, at: int, *, capped: bool) -> None:
        self.at = at
        self.capped = (
            capped  # not every node could be marked: any later backward may have walked the rest
        )


class _CreateGraphCall:
    """One call with ``create_graph``, alive as long as a graph of its gradients."""

    def __init__(self, at: int, step: int) -> None:
        self.at = at
        self.step = step


class BackwardProbe(Probe):
    """Writes ``backward`` and ``reused``.

    A graph that was kept is recognised by marks in its nodes' metadata, which hold nothing of the
    graph alive. Where a walk is cut off at the cap, the graph counts as reused: a retention is
    called needless only when that is certain.
    """

    name = "backward"
    parts = ("backward", "reused")
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._live: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self._rows = Counted(context, BackwardRow)
        self._reused: set[int] = set()
        self._held: set[int] = set()
        self._made: weakref.WeakSet[_CreateGraphCall] = weakref.WeakSet()
        self._differentiated: set[int] = set()
        self._unknown: set[int] = set()

    def start(self) -> None:
        self._rows.clear()
        self._reused.clear()
        super().start()

    def stop(self) -> None:
        """Leave the door. Marks vanish with their graphs."""
        super().stop()
        for at in {made.at for made in self._made if made.step < self.context.step}:
            self.context.add(ReusedRow(at=at, gradients=True))
        self._made.clear()

    def backward_begins(self, call: Backward) -> None:
        """Look for marks of an earlier retained backward in the graph about to be walked."""
        if self._live:
            self._reused |= {kept.at for kept in self._reached(call.walked)}
        if self._made:
            of = (node.metadata.get(_MADE, ()) for node in call.walked.nodes)
            # what was not reached may have been differentiated
            walked = set(self._made) if call.walked.capped else {one for some in of for one in some}
            self._differentiated |= {made.at for made in walked}

    def backward_ends(self, call: Backward) -> None:
        if call.nested or not self.context.in_step:
            return
        at = self.context.frames.here()
        if at is None:
            return
        retain = call.keep_graph and not call.create_graph and self._asked_by_user("retain_graph")
        if call.create_graph and not call.failed:
            self._follow(call, at)
        row = self._rows.of(at=at, retain=retain, create=call.create_graph)
        row.n += 1
        row.us += call.us
        row.followed = call.create_graph and at not in self._unknown
        if retain and not call.failed:
            kept = _Kept(at, capped=call.walked.capped)
            for node in call.walked.nodes:
                node.metadata[_MARK] = kept
            self._live.add(kept)
            if at not in self._held:  # measured once per place
                self._held.add(at)
                row.held_bytes = saved_bytes(call.walked)

    def step_end(self) -> None:
        self._rows.write()
        for at in self._reused:
            self.context.add(ReusedRow(at=at))
        for at in self._differentiated:
            self.context.add(ReusedRow(at=at, gradients=True))
        self._reused.clear()
        self._differentiated.clear()

    def _follow(self, call: Backward, at: int) -> None:
        """Mark the gradients that the call returned. It is unknown whether the graph of other
        gradients is wanted: those in ``.grad``, those without one, those that another library asked
        for.
        """
        given = call.result if isinstance(call.result, tuple) else ()
        nodes: list[Node] = [node_of(each) for each in given if isinstance(each, torch.Tensor)]
        if not nodes or None in nodes or not self._asked_by_user("create_graph"):
            self._unknown.add(at)
            return
        made = _CreateGraphCall(at, self.context.step)
        for node in nodes:
            node.metadata.setdefault(_MADE, []).append(made)
        self._made.add(made)

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

    def _asked_by_user(self, keyword: str) -> bool:
        """True if only torch's own entry points stand between the user's line and the engine, or
        the line names the flag.

        A framework hands on what it is given: ``self.manual_backward(loss, retain_graph=True)``.
        """
        through_library = False
        for frame in outwards(sys._getframe(1)):
            file = frame.f_code.co_filename
            if self.context.frames.is_user(file):
                return not through_library or keyword in getline(file, frame.f_lineno)
            if file not in _PASS_ON and not file.startswith("<") and not file.startswith(OWN):
                through_library = True
        return False
