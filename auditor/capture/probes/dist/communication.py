"""Every collective of a step, also those that DistributedDataParallel, FSDP and DTensor issue."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from auditor.capture.instruments.plain_tensor import bytes_of, tensors
from auditor.capture.instruments.torch_private.cuda import group_of_name
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import (
    Call,
    Operator,
    OperatorProbe,
    Subscriber,
    site_of_operator,
)
from auditor.recordings.schema.dist import CommunicationRow

WATCHED = 3
"""Steps of the precision pass whose operators are watched, since each operator costs a Python call.
On a null device the whole diagnostic pass is watched, so that rehearsed ranks can be compared.
"""

LOGGED = 20_000
"""Rows that are written at most: about 4 MB."""

KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "broadcast_": "broadcast",
    "barrier": "barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
    "broadcast": "broadcast",
}
"""Operators of ``c10d`` and ``_c10d_functional``, and their names in ``torch.distributed``."""

AT_ONCE, FUNCTIONAL, WAIT = "c10d", "_c10d_functional", "wait_tensor"

ASYNC = tuple(
    """
    all_reduce broadcast reduce all_gather all_gather_into_tensor gather scatter reduce_scatter
    reduce_scatter_tensor all_to_all all_to_all_single isend irecv
    """.split()
)
"""Functions whose result can be waited for later (a ``Work``)."""

GIVEN = ("input", "inputs", "input_tensor", "input_tensors", "input_list")
GOT = ("output", "outputs", "output_tensor", "output_tensors", "output_lists", "out")
IN_PLACE = ("tensors",)


class TrafficWatch(Subscriber):
    """Sees the operators of ``torch.distributed`` as they are issued, in the autograd engine's
    threads as well. What DTensor makes of an operator is seen, and not the operator on it.
    """

    inside = True

    def __init__(
        self, on_error: Callable[[Exception], None], here: Callable[[], int | None]
    ) -> None:
        super().__init__(on_error)
        self._here = here
        self._lock = threading.Lock()
        self.rows: list[CommunicationRow] = []
        self.operators = 0
        self._awaited: dict[int, tuple[CommunicationRow, int]] = {}

    def wants(self, operator: Operator) -> bool:
        collective = operator.namespace in (AT_ONCE, FUNCTIONAL)
        return collective or not any(each.alias_info for each in operator.schema.returns)

    def before(self, call: Call) -> Any:
        """A collective, as a row completed after it ran; any other operator is counted."""
        space, name, schema = call.operator.namespace, call.operator.own_name, call.operator.schema
        if space not in (AT_ONCE, FUNCTIONAL):
            self.operators += 1
            return None
        given = {each.name: value for each, value in zip(schema.arguments, call.args, strict=False)}
        given |= call.kwargs
        if name == WAIT:
            found = self._awaited.pop(given["tensor"].data_ptr(), None)
            if found is not None:
                self.waited(*found, self._here())
        return (space, KINDS[name], given) if name in KINDS else None

    def after(self, call: Call, noted: Any) -> None:
        (space, what, given), result = noted, call.result
        at = self._here()
        if at is None:
            return
        row = self._row(what, given, result if space == FUNCTIONAL else None)
        row.at = at
        with self._lock:
            if space == FUNCTIONAL:
                for each in tensors((result,)):
                    self._awaited[each.data_ptr()] = row, self.operators
            elif not given.get("async_op", given.get("asyncOp", True)) and _on_main_stream():
                row.waited_at, row.between = at, 0
            self.rows.append(row)

    def waited(self, row: CommunicationRow, since: int, at: int | None) -> None:
        """The program waits for a collective that was issued after ``since`` operators."""
        if row.between is None and at is not None:
            row.waited_at, row.between = at, max(0, self.operators - since)

    @staticmethod
    def _row(what: str, given: dict[str, Any], result: Any) -> CommunicationRow:
        both = [each for name in IN_PLACE for each in tensors((given.get(name),))]
        gave = both + [each for name in GIVEN for each in tensors((given.get(name),))]
        got = both + [each for name in GOT for each in tensors((given.get(name),))]
        row = CommunicationRow(at=-1, what=what)
        row.dtype = str((gave or got)[0].dtype).removeprefix("torch.") if gave or got else ""
        row.bytes_in = 0 if what == "recv" else sum(map(bytes_of, gave))
        row.bytes_out = 0 if what == "send" else sum(map(bytes_of, got or tensors((result,))))
        group = _group(given)
        if group is not None:
            row.ranks = group.size()
            row.group = str(getattr(group, "group_desc", "") or "")
        return row


def _group(given: dict[str, Any]) -> Any:
    group: Any = given.get("process_group", given.get("group_name"))
    if isinstance(group, str):
        return group_of_name(group)
    return group if hasattr(group, "size") else dist.ProcessGroup.unbox(group)


def _on_main_stream() -> bool:
    """Whether what waits is what computes: FSDP waits on streams of its own."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return True
    return bool(torch.cuda.current_stream() == torch.cuda.default_stream())


class CommunicationProbe(OperatorProbe):
    """Writes ``communication``: on a device that computes nothing in the diagnostic pass, where no
    time counts; else in the precision pass, which watches operators anyway.
    """

    name = "communication"
    passes = frozenset({"loud", "numbers"})
    unseen = "some collectives were not seen"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watch: TrafficWatch | None = None
        self._works: weakref.WeakKeyDictionary[Any, tuple[CommunicationRow, int]]
        self._works = weakref.WeakKeyDictionary()
        self._logged = 0
        self._inside = False

    def start(self) -> None:
        """Each step begins its own watch."""

    def step_begin(self) -> None:
        """Watch the first steps of the pass, where there are several ranks."""
        super().step_begin()
        null = self.context.device.null
        if self.context.pass_name != ("loud" if null else "numbers"):
            return
        seen = self.context.step >= WATCHED and not null
        if seen or not dist.is_available() or not dist.is_initialized():
            return
        if dist.get_world_size() > 1:
            self.context.writer.touch(self.parts[0])
            super().start()

    def watch(self) -> None:
        self._watch = TrafficWatch(self.missed, self._here)
        self._works.clear()
        for name in ASYNC:
            for owner in (dist, dist.distributed_c10d):
                if name in vars(owner):
                    self._patches.attribute(owner, name, self._followed(vars(owner)[name]))
        for kind in (dist.Work, *dist.Work.__subclasses__()):
            if "wait" in vars(kind):
                self._patches.around(kind, "wait", before=self._wait)
        self.enter(self._watch)

    def step_end(self) -> None:
        watch = self._watch
        self.stop()
        for row in watch.rows if watch is not None else ():
            if self._logged < LOGGED:
                self._logged += 1
                self.context.add(row)

    def stop(self) -> None:
        super().stop()
        self._watch = None

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose result is known when it is waited for."""
        note = self.guarded(self._issued)

        @functools.wraps(original)
        def followed(*args: Any, **kwargs: Any) -> Any:
            outer, self._inside = self._inside, True
            try:
                work = original(*args, **kwargs)
            finally:
                self._inside = outer
            if work is not None and not outer:
                note(work)
            return work

        return followed

    def _issued(self, work: Any) -> None:
        watch = self._watch
        if watch is not None and watch.rows and isinstance(work, dist.Work):
            self._works[work] = watch.rows[-1], watch.operators

    def _wait(self, work: Any, *_: Any, **__: Any) -> None:
        watch, found = self._watch, self._works.pop(work, None)
        if watch is not None and found is not None:
            watch.waited(*found, self._here())

    def _here(self) -> int | None:
        """The user's line; of what a backward issues in a thread of torch's, the backward's."""
        if not self.context.in_step:
            return None
        at = site_of_operator(self.context)
        if at is not None or threading.get_ident() == self._thread:
            return at
        frames = self.context.frames
        found = frames.user_frames(sys._current_frames().get(self._thread), 1)
        return frames.number(found[0]) if found else None
