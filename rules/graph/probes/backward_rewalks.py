"""Backward calls of one step that walk a graph which an earlier one of the same step walked and
kept.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.assignment_sites import Sources
from auditor.capture.instruments.autograd_graph import Backward, node_of
from auditor.capture.instruments.notebook_cells import source_path
from auditor.capture.instruments.object_search import frame_locals, qualified_name
from auditor.capture.instruments.torch_private.autograd import next_number, number_of
from auditor.capture.instruments.variable_paths import Place
from auditor.capture.probes.base import Context, Probe

from ..rows import RewalkRow

_MARK = "audit.kept_in_step"
"""Key in a node's metadata: the step in which a backward walked it and kept its graph."""

_HANDED = "audit.handed_on"
"""The same at the node behind a variable, once that backward was over: the step, and the number of
the place among those of the probe.
"""

CALLS = 64
"""Backward calls of one step that are written at most; of a step with more, the first ones."""

FRAMES = 4
"""User frames around a backward whose variables are looked at."""

ITEMS = 8
"""Items of a list or tuple that are looked at."""


class BackwardRewalksProbe(Probe):
    """Writes ``rewalked``: the calls of a step in which one walked what an earlier one had kept.

    The variable through which a call reached the earlier graph is the one with the newest node of
    those that were held when the earlier call was over.
    """

    name = "rewalks"
    parts = ("rewalked",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sources = Sources()
        self._places: list[Place] = []
        self._numbers: dict[Place, int] = {}
        self._forget()

    def _forget(self) -> None:
        self._rows: list[RewalkRow] = []
        self._row: RewalkRow | None = None
        self._handed: dict[int, int] = {}
        self._since: int | None = None
        self._blind = False

    def start(self) -> None:
        self._forget()
        super().start()

    def stop(self) -> None:
        """Leave the door. Marks vanish with their graphs."""
        super().stop()
        self._forget()

    def backward_begins(self, call: Backward) -> None:
        """Count what was walked before in this step, and mark what this call keeps."""
        self._row = None
        follows = self._since is not None
        if call.nested or not self.context.in_step or not (follows or call.keep_graph):
            return
        at = self.context.frames.here()
        if at is None or len(self._rows) >= CALLS:
            return
        if call.walked.capped:
            self._blind = True
            return
        self._row = self._counted(call, at)

    def _counted(self, call: Backward, at: int) -> RewalkRow:
        now = self.context.step
        again, newer, entry = 0, 0, (-1, -1)
        for node in call.walked.nodes:
            data = node.metadata
            if self._since is not None:
                if data.get(_MARK) == now:
                    again += 1
                    newer += number_of(node) >= self._since
                step, place = data.get(_HANDED, (-1, -1))
                if step == now:
                    entry = max(entry, (number_of(node), place))
            if call.keep_graph:
                data[_MARK] = now
        row = RewalkRow(at=at, nodes=len(call.walked.nodes), again=again, newer=newer)
        row.kept, row.summed = call.keep_graph, not (call.inputs or call.create_graph)
        if again and entry[1] >= 0:
            self._name(row, self._places[entry[1]])
        return row

    def _name(self, row: RewalkRow, place: Place) -> None:
        found = self._sources.find(place)
        row.name, row.line = f"{found.name}{found.path}", found.line
        row.file, row.function = source_path(found.file), found.function

    def backward_ends(self, call: Backward) -> None:
        """Note which variables hold a graph now: what a later call walks may come from them."""
        row, self._row = self._row, None
        if row is None or call.failed or call.nested:
            return
        self._rows.append(row)
        if not call.keep_graph:
            return
        if self._since is None:
            self._since = next_number()
        for place, tensor in _variables(self.context.frames.is_user):
            node = node_of(tensor)
            if node is not None:
                node.metadata[_HANDED] = (self.context.step, self._number(place))

    def _number(self, place: Place) -> int:
        if place not in self._numbers:
            self._numbers[place] = len(self._places)
            self._places.append(place)
        return self._numbers[place]

    def step_end(self) -> None:
        """Write the calls of a step in which a graph was walked twice."""
        rows, blind = self._rows, self._blind
        self._forget()
        if not blind and any(row.again for row in rows):
            for row in rows:
                self.context.add(row)


def _variables(is_user: Callable[[str], bool]) -> Iterator[tuple[Place, torch.Tensor]]:
    """Tensors that variables of the user's innermost frames hold, themselves or one item or one
    attribute of ``self`` further in.
    """
    frame: FrameType | None = sys._getframe(1)
    looked = 0
    while frame is not None and looked < FRAMES:
        code = frame.f_code
        if is_user(code.co_filename):
            looked += 1
            yield from _of_frame(frame)
        frame = frame.f_back


def _of_frame(frame: FrameType) -> Iterator[tuple[Place, torch.Tensor]]:
    code = frame.f_code
    if code.co_flags & inspect.CO_OPTIMIZED:
        function, first = qualified_name(code), code.co_firstlineno
        for name, value in frame_locals(frame).items():
            place = Place(code.co_filename, function, first, name)
            yield from _tensors(place, value)
            if name == "self":
                yield from _of_object(place, value)
    for name, value in list(frame.f_globals.items()):
        if not name.startswith("__"):
            yield from _tensors(Place(code.co_filename, "<module>", 0, name), value)


def _of_object(place: Place, value: Any) -> Iterator[tuple[Place, torch.Tensor]]:
    kind = type(value)
    for name, held in list(getattr(value, "__dict__", {}).items()):
        inside = Place(place.file, place.function, place.first_line, "self", f".{name}", kind, name)
        yield from _tensors(inside, held)


def _tensors(place: Place, value: Any) -> Iterator[tuple[Place, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield place, value
    elif type(value) in (tuple, list):
        yield from ((place, each) for each in value[:ITEMS] if isinstance(each, torch.Tensor))
