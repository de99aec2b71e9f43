"""The autograd graph from outside: the door of every backward, a bounded walk, saved bytes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from types import FunctionType
from typing import Any, cast

import torch

from auditor.capture.instruments.live_objects import one_look
from auditor.capture.instruments.monkeypatch import LOOKING, Patches
from auditor.capture.instruments.torch_private import autograd
from auditor.capture.instruments.torch_private.compiler import is_traced
from auditor.capture.instruments.torch_private.tensors import base_of

NODE_CAP = 20_000
"""Nodes visited by one walk at most: about 10 ms of Python."""

Node = Any
"""A ``torch.autograd.graph.Node``; its concrete types are made in C++ and carry no annotations."""


@dataclass(frozen=True)
class Walk:
    """The nodes reached, without the leaves' AccumulateGrad; ``leaves`` are those."""

    nodes: list[Node]
    leaves: list[Node]
    capped: bool
    """True if there were more nodes than the cap: what was not reached is unknown."""


def walk(roots: Iterable[Node]) -> Walk:
    """All nodes that a backward from ``roots`` may run, at most ``NODE_CAP``.

    The result keeps the graph alive: let go of it before the user's code runs on.
    """
    seen: set[Node] = set()
    nodes: list[Node] = []
    leaves: list[Node] = []
    waiting = [root for root in roots if root is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        if len(seen) >= NODE_CAP:
            return Walk(nodes, leaves, capped=True)
        seen.add(node)
        following = node.next_functions
        if not following and type(node).__name__ == "AccumulateGrad":
            leaves.append(node)
            continue
        nodes.append(node)
        waiting.extend([after for after, _ in following if after is not None])
    return Walk(nodes, leaves, capped=False)


def node_of(tensor: torch.Tensor) -> Node | None:
    """``grad_fn``, or None for a leaf and where torch refuses (some views changed in place)."""
    try:
        return tensor.grad_fn if tensor.requires_grad else None
    except RuntimeError:
        return None


# -- the weight of saved tensors -------------------------------------------------------------------

_SAVED_NAMES: dict[type, tuple[str, ...]] = {}


def saved_bytes(walked: Walk) -> int | None:
    """Bytes of distinct storages that the nodes still hold for backward, without parameters.

    Nothing is unpacked, so no hook of the user's runs (non-reentrant checkpointing would recompute
    its forward). None if torch has no raw view of them.
    """
    found = saved_by(walked, lambda node: "")
    return None if found is None else sum(found.values())


def saved_by(walked: Walk, owner: Callable[[Node], str]) -> Counter[str] | None:
    """Bytes of saved tensors per owner of nodes; of several the oldest node's owner counts."""
    if not autograd.CAN_WEIGH:
        return None
    sizes: dict[tuple[str, int], int] = {}
    owners: dict[tuple[str, int], str] = {}
    for node in sorted(walked.nodes, key=autograd.number_of, reverse=True):
        name = owner(node)
        for tensor in _saved(node):
            if (key := _weigh(tensor, sizes)) is not None:
                owners[key] = name
    for leaf in walked.leaves:  # a parameter lives on with or without the graph
        sizes.pop(_storage_key(leaf.variable) or ("", 0), None)
    found = Counter[str]()
    for key, size in sizes.items():
        found[owners[key]] += size
    return found


def _saved(node: Node) -> Iterator[torch.Tensor]:
    kind = type(node)
    names = _SAVED_NAMES.get(kind)
    if names is None:
        names = _SAVED_NAMES[kind] = tuple(
            name for name in dir(kind) if name.startswith(autograd.SAVED)
        )
    for name in names:
        try:
            saved = getattr(node, name)
            entries = saved if isinstance(saved, (tuple, list)) else (saved,)
            held = [entry.data for entry in entries if entry is not None]
        except RuntimeError:  # freed
            continue
        yield from (tensor for tensor in held if isinstance(tensor, torch.Tensor))
    # a custom function's ``ctx.mask = mask``
    for kept in list(getattr(node, "__dict__", {}).values()):
        several = kept if isinstance(kept, (tuple, list)) else (kept,)
        yield from (tensor for tensor in several if isinstance(tensor, torch.Tensor))


def _weigh(tensor: torch.Tensor, sizes: dict[tuple[str, int], int]) -> tuple[str, int] | None:
    base = base_of(tensor)
    owner = tensor if base is None else base
    key = _storage_key(tensor)
    if key is None or isinstance(owner, torch.nn.Parameter):
        return None
    size = tensor.untyped_storage().nbytes()
    if node_of(tensor) is None:
        size = min(size, tensor.nbytes)  # an input may be a slice of the user's whole dataset
    sizes[key] = max(size, sizes.get(key, 0))
    return key


def _storage_key(tensor: torch.Tensor) -> tuple[str, int] | None:
    try:
        return str(tensor.device), tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError, AttributeError):
        # sparse, wrapped and meta tensors own no plain storage
        return None


# -- the door --------------------------------------------------------------------------------------


class Backward:
    """One call into the autograd engine: ``Tensor.backward``, ``torch.autograd.grad`` ...."""

    __slots__ = tuple(
        "_outputs _walked create_graph failed inputs keep_graph nested result us".split()
    )

    def __init__(
        self, outputs: Any, keep_graph: bool, create_graph: bool, nested: bool, inputs: Any = None
    ) -> None:
        self._outputs = outputs
        self._walked: Walk | None = None
        self.keep_graph = keep_graph
        """The graph stays after the call (also when that was only implied by ``create_graph``)."""
        self.create_graph = create_graph
        self.nested = nested
        """Called from inside another backward (re-entrant checkpointing, a custom function)."""
        self.inputs: tuple[Any, ...] = _together(inputs)
        """What the gradient was asked for by name; empty if it goes to all leaves."""
        self.result: Any = None
        """What the engine returned; let go of once the watchers were told."""
        self.us = 0.0
        self.failed = True

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors that it begins at."""
        outputs = (
            (self._outputs,) if isinstance(self._outputs, torch.Tensor) else tuple(self._outputs)
        )
        return tuple(output for output in outputs if isinstance(output, torch.Tensor))

    @property
    def walked(self) -> Walk:
        """The graph of the call, walked on demand, once before the engine and once after."""
        if self._walked is None:
            outputs = _together(self._outputs)
            self._walked = walk(
                [
                    node_of(out) if isinstance(out, torch.Tensor) else getattr(out, "node", None)
                    for out in outputs
                ]
            )
        return self._walked

    def let_go(self) -> None:
        """Hold no node any longer: the engine frees what it can as it goes."""
        self._walked = None
        self.result = None


def _together(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    return (
        (given,)
        if isinstance(given, torch.Tensor) or not isinstance(given, Iterable)
        else tuple(given)
    )


Watcher = Any
"""Told about every backward of the process while it is registered with the door, as
:class:`auditor.capture.probes.base.Probe` is; ``backward_lost(error)``: it raised the error and was
taken off, and the user's step continues.
"""


class BackwardHooks:
    """Replaces the Python function through which torch enters its engine, while anybody watches."""

    def __init__(self) -> None:
        self._watchers: list[Watcher] = []
        self._patches = Patches()
        self._installed = False
        self._depth = 0

    def add(self, watcher: Watcher) -> None:
        """Begin to tell ``watcher``; the first one installs the patch."""
        if not self._installed:
            self._install()
        self._watchers.append(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Stop telling it; the last one takes the patch away. May be called twice."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if not self._watchers:
            self._patches.undo()
            self._installed = False

    def _install(self) -> None:
        self._installed = True
        if autograd.engine is not None:
            self._patches.code(autograd.engine, self._engine)
            return
        # A torch that renamed its funnel: the two public entries are all that is left to hold.
        for entry in (torch.autograd.backward, torch.autograd.grad):
            self._patches.code(cast("FunctionType", entry), self._public)

    def _engine(self, original: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
        keep = kwargs.get("keep_graph", args[1] if len(args) > 1 else False)
        create = kwargs.get("create_graph", args[2] if len(args) > 2 else False)
        inputs = kwargs.get("inputs", args[3] if len(args) > 3 else None)
        call = Backward(outputs, bool(keep), bool(create), self._depth > 0, inputs)
        return self._run(call, original, (outputs, *args), kwargs)

    def _public(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        names = (
            ("outputs", "inputs", "grad_outputs")
            if original.__name__ == "grad"
            else ("tensors", "grad_tensors")
        )
        named = {
            **dict(zip((*names, "retain_graph", "create_graph"), args, strict=False)),
            **kwargs,
        }
        create, keep = bool(named.get("create_graph")), named.get("retain_graph")
        keep = create if keep is None else bool(keep)
        call = Backward(named[names[0]], keep, create, self._depth > 0, named.get("inputs"))
        return self._run(call, original, args, kwargs)

    def _run(
        self,
        call: Backward,
        original: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        traced = any(map(is_traced, call.tensors))  # by the compiler: nothing is computed
        watchers = () if traced or LOOKING.depth else tuple(self._watchers)  # ours is not theirs
        with one_look():
            for watcher in watchers:
                try:
                    with LOOKING:
                        watcher.backward_begins(call)
                except Exception as error:
                    self._lose(watcher, error)
        call.let_go()
        self._depth += 1
        start = perf_counter()
        try:
            result = call.result = original(*args, **kwargs)
            call.failed = False
            return result
        finally:
            call.us = (perf_counter() - start) * 1e6
            self._depth -= 1
            for watcher in watchers:
                try:
                    with LOOKING:
                        watcher.backward_ends(call)
                except Exception as error:
                    self._lose(watcher, error)
            call.let_go()

    def _lose(self, watcher: Watcher, error: Exception) -> None:
        """What ours raises must never become the user's."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            watcher.backward_lost(error)


BACKWARD_HOOKS = BackwardHooks()
"""One for the process, as the engine is."""
