"""Does the target train at all? A backward or optimizer step answers, else a closer look."""

import contextlib
import weakref
from collections.abc import Iterator

import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import version_hint
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps
from auditor.recordings.schema.run import TrainingRow

FIRST = 1
"""Warm-up steps before operators are watched: most targets have shown that they train."""

WATCHED = 3
"""Upper bound on warm-up steps whose operators are watched, once an operator has run."""

TENSORS = 512
ELEMENTS = 1024
"""Parameters, and elements of one, that are compared at most: the first ones."""


Remembered = tuple["weakref.ref[torch.Tensor]", int, torch.Tensor, tuple[int, ...]]
"""A parameter, its version, a copy of its first elements, and its shape."""


class ForwardWatch(Subscriber):
    """Counts operators, and those among them that build an autograd graph."""

    operators = 0
    graphs = 0

    def before(self, call: Call) -> None:
        self.operators += 1
        self.graphs += call.graph


class TrainingProbe(OperatorProbe):
    """Writes ``training``: one row, when the run is over.

    Anything that may be training counts as training: a call into the autograd engine (also by
    ``torch.func``), an optimizer's step in any thread, parameters that are changed in place (by
    hand, by a CUDA graph) or that are replaced. A target that shows none of this in its first step
    has the operators of some warm-up steps watched, and its parameters compared.
    """

    name = "training"
    passes = frozenset({"warmup", "quiet"})
    always = True
    in_rehearsals = True
    unseen = "some operators were not counted"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._told = OptimizerSteps(after=lambda optimizer: self._saw("optimizer"))
        self._sign = ""
        self._watched = 0
        self._counts = {"operators": 0, "graphs": 0}
        self._watch: ForwardWatch | None = None
        self._before: list[Remembered] = []
        self._live = False

    def install(self) -> None:
        self._live = True
        self._always.on_undo(self._told.uninstall)
        self._told.install()
        self.watch_backward(self._always)

    def start(self) -> None:
        """Where no sign was seen in the warm-up, remember how the parameters are now."""
        if self.context.pass_name != "quiet" or self._sign:
            return
        for each in _parameters():
            with contextlib.suppress(Exception):  # one that cannot be looked at
                sample, shape = _sample(each).clone(), tuple(each.shape)
                self._before.append((weakref.ref(each), version_hint(each), sample, shape))

    def step_begin(self) -> None:
        context = self.context
        known = self._watched >= WATCHED and self._counts["operators"]
        if context.pass_name == "warmup" and context.step >= FIRST and not self._sign and not known:
            super().start()

    def watch(self) -> None:
        self._watch = ForwardWatch(self.missed)
        self.enter(self._watch)

    def step_end(self) -> None:
        """Leave the watch; once something was trained there is nothing more to listen for."""
        self.stop()
        if self._sign:
            # the hook of the optimizers stays: a script's step may end inside it
            BACKWARD_HOOKS.remove(self)

    def stop(self) -> None:
        super().stop()
        watch, self._watch = self._watch, None
        if watch is not None:
            self._watched += 1
            self._counts["operators"] += watch.operators
            self._counts["graphs"] += watch.graphs

    def uninstall(self) -> None:
        live, self._live = self._live, False
        super().uninstall()
        if live:
            self._look_again()
            operators, graphs = self._counts["operators"], self._counts["graphs"]
            row = TrainingRow(sign=self._sign, watched=self._watched, operators=operators)
            row.graphs = graphs
            self.context.add(row)
        self._before.clear()

    def _look_again(self) -> None:
        """The last chance: did parameters change? Replays of a CUDA graph may do so unseen."""
        if not self._sign:
            try:
                changed = self._changed() or live_instances(torch.cuda.CUDAGraph)
                self._sign = "parameters" if changed else ""
            except Exception:  # a device that is gone: nothing is said against the target
                self._sign = "unknown"

    def backward_begins(self, call: Backward) -> None:
        self._saw("backward")

    def _saw(self, sign: str) -> None:
        self._sign = self._sign or sign
        self.context.trained = True

    def _changed(self) -> bool:
        """Whether a parameter is not what it was, or a new one took the place of another."""
        gone = set()
        for reference, version, sample, shape in self._before:
            now = reference()
            if now is None:
                gone.add(shape)
            elif version_hint(now) != version or not _same(_sample(now), sample):
                return True
        known = {id(reference()) for reference, *_ in self._before}
        return bool(gone) and any(
            tuple(each.shape) in gone for each in _parameters() if id(each) not in known
        )


def _parameters() -> Iterator[torch.Tensor]:
    """Live parameters and other leaves that want gradients; no fake ones of torch.compile."""
    found = 0
    for each in live_instances(torch.Tensor):
        if found >= TENSORS:
            return
        leaf = isinstance(each, torch.nn.Parameter) or (each.requires_grad and each.is_leaf)
        if (
            leaf
            and each.layout is torch.strided
            and not each.is_meta
            and not hasattr(each, "fake_mode")
        ):
            found += 1
            yield each


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return plain(tensor.detach()).reshape(-1)[:ELEMENTS]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """By their bytes: a NaN that stays is no change."""
    if one.dtype != other.dtype:
        return False
    return torch.equal(*(each.contiguous().view(torch.uint8) for each in (one, other)))
