"""The flow of values through operators: makers, readers, and results that were dropped unread."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils import flop_counter

from auditor.capture.instruments.plain_tensor import bytes_of, content, plain, tensors
from auditor.capture.instruments.storages import Storages, storage_bytes, storage_key
from auditor.capture.instruments.torch_private.autograd import current_node, next_number, number_of
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import OVERWRITES, Call, Operator, Subscriber

MOST_NODES = 250_000
"""Calls that are remembered: 0.7 KiB each (benchmarks/pass_memory.py)."""

HOST_BYTES = 1 << 16
"""Of what the host makes (``torch.tensor``) as much is compared."""

Spots = tuple[tuple[int, int], ...]
"""Code objects and instructions in them."""

_SENDING = os.path.join("torch", "multiprocessing", "")
"""Files of torch that send tensors to other processes, and receive them."""

_EVAL_FRAME = os.path.join("torch", "_dynamo", "eval_frame.py")

_NOWHERE: tuple[Path, Spots, set[str]] = (), (), set()


class Stacks:
    """The user's lines on the stack, cheaply."""

    def __init__(self, frames: Frames, upload: CodeType | None) -> None:
        self._frames = frames
        self._kinds: dict[int, str] = {}
        self._passed: dict[int, dict[str, Any]] = {}
        self._upload = "" if upload is None else upload.co_filename
        self._codes: list[CodeType] = []  # alive, so that an id is one's; hashing them is slow
        if upload is not None:
            self._note(upload, "upload")
        self._paths: dict[tuple[Any, ...], Path] = {}

    def here(self) -> tuple[Path, Spots, set[str]]:
        """The lines, their expressions, and of what kind other functions on the stack are:
        ``compiled``, ``upload`` (the shadow device copies to itself), ``sending``.
        """
        frame: FrameType | None = sys._getframe(2)
        users: list[FrameType] = []
        others: set[str] = set()
        kinds, passed = self._kinds, self._passed
        while frame is not None:
            if id(frame.f_globals) in passed:
                frame = frame.f_back
                continue
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = self._note(code, self._kind(code))
            if not kind and self._may_pass(frame):
                passed[id(frame.f_globals)] = frame.f_globals
            if kind == "user":
                users.append(frame)
            elif kind:
                others.add(kind)
            frame = frame.f_back
        key = tuple([(id(each.f_code), each.f_lasti) for each in reversed(users)])
        path = self._paths.get(key)
        if path is None:
            path = tuple(self._frames.number(each) for each in reversed(users))
            self._paths[key] = path
        return path, key, others

    def _note(self, code: CodeType, kind: str) -> str:
        self._codes.append(code)
        self._kinds[id(code)] = kind
        return kind

    def _may_pass(self, frame: FrameType) -> bool:
        """Whether it is of a library's module all of whose code is of no kind."""
        if not self._frames.is_library_frame(frame):
            return False
        file = frame.f_globals["__file__"]
        return not (file.endswith(_EVAL_FRAME) or _SENDING in file or file == self._upload)

    def _kind(self, code: CodeType) -> str:
        if self._frames.is_user(code.co_filename):
            return "user"
        if code.co_filename.endswith(_EVAL_FRAME):
            return "" if code.co_qualname.startswith("DisableContext") else "compiled"
        return "sending" if _SENDING in code.co_filename else ""


class FlowWatch(Subscriber):
    """Follows values by their storages: views share them. Results are those of the operators."""

    def __init__(self, context: Context, on_error: Callable[[Exception], None]) -> None:
        super().__init__(on_error)
        self._context = context
        self.stacks = Stacks(context.frames, _upload() if context.device.shadow else None)
        self._operators: dict[Operator, FlowOperator] = {}
        self._seen: dict[tuple[int, Any], dict[int, Node]] = {}
        self._types: dict[type, bool] = {torch.Tensor: True, torch.nn.Parameter: True}
        self.flow = Flow()
        self.blind = ""
        """Why nothing can be said; empty: something can."""
        self.backward: tuple[int, Path] | None = None
        """The backward that runs: its number, and the lines that called it."""
        self.backwards = 0
        """How many have begun."""
        self._made = 0
        self._uploads = False

    def fix(self, how: int, tensors: Iterable[Any]) -> None:
        """These hold the same on every step, unless something is seen to write them."""
        for each in tensors:
            if isinstance(each, torch.Tensor):
                self.value(each).fixed = how

    # -- values ------------------------------------------------------------------------------------

    def value(self, tensor: torch.Tensor) -> Value:
        """What a tensor's storage holds now."""
        held = self.flow.held.of(tensor)
        if held is not None:
            return held.value
        value = Value(None, self._new())
        self.flow.held.lay(tensor, Held(value, -1))
        return value

    def find(self, tensor: torch.Tensor) -> Value | None:
        """The tensor's value, if it was seen."""
        held = self.flow.held.of(tensor)
        return None if held is None else held.value

    def _new(self) -> int:
        self._made += 1
        return hash(("new", self._made))

    def escape(self, tensor: torch.Tensor, *, address: bool) -> None:
        """Somebody reads the tensor; with its address also what will be written there."""
        value = self.value(tensor)
        self.flow.kept.append(value)
        value.raw = False
        held = self.flow.held.of(tensor)
        if address and held is not None:
            held.escaped = True

    # -- one call ----------------------------------------------------------------------------------

    def wants(self, operator: Operator) -> bool:
        known = self._operators[operator] = FlowOperator(operator)
        return known.fresh or not known.view

    def before(self, call: Call) -> Any:
        """What the call reads, before it writes; nothing once nothing can be said."""
        operator, given, args = self._operators[call.operator], call.given, call.args
        if self.blind or not all(self._plain(each) for each in given):
            return None
        written = [*call.written, *operator.statistics(args)]
        over = {id(each) for each in written if operator.overwrites and _fills_storage(each)}
        read = [each for each in given if id(each) not in over]
        inputs = [self.value(each) for each in read]
        if any(value.raw for value in inputs) and not (operator.overwrites or operator.raw):
            self._unseen(operator, read, written)
        over.update(id(each) for each in operator.statistics(args))
        recipe = self._recipe(call, operator, over)
        return operator, written, inputs, recipe

    def after(self, call: Call, noted: Any) -> None:
        operator, written, inputs, recipe = noted
        given = call.given
        if operator.fresh:
            self._fresh(given[0])
            return
        made = self._made_by(call)
        if made is None:
            made, strange = [], True
        else:
            strange = False
        node = self._node(call, operator, inputs, sink=operator.sink or strange)
        nbytes = sum(each.nbytes for each in made)
        node.nbytes = nbytes
        moved = nbytes + sum(bytes_of(each) for each in given if not operator.like)
        node.work = operator.work(call, moved)
        node.recipe = self._new() if operator.random or recipe is None else recipe
        reads = [] if operator.like else inputs
        if not (operator.random or operator.sink or strange or recipe is None):
            fixed = [value.fixed for value in reads]
            node.fixed = max(fixed, default=CONSTANT) if all(fixed) else 0
        self._place(node, call, operator, made)
        for tensor in made:
            value = Value(node, node.recipe, node.fixed, operator.raw, node.records)
            node.made.append(value)
            self.flow.held.lay(tensor, Held(value, self._context.step))
        for tensor in written:
            self._write(tensor, node)

    def _plain(self, tensor: torch.Tensor) -> bool:
        kind = type(tensor)
        known = self._types.get(kind)
        if known is None:
            known = self._types[kind] = hasattr(tensor, "_inner") or (
                not hasattr(kind, "__tensor_flatten__")
                and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
            )
        if not known:
            self.blind = f"the step computes with {kind.__name__}, whose operators are not seen"
        return known

    def _made_by(self, call: Call) -> list[torch.Tensor] | None:
        """New tensors; None if one of them has no storage to know it by."""
        old = {storage_key(each) for each in call.given}
        made = [(each, storage_key(each)) for each in call.made if self._plain(each)]
        if any(key is None for _, key in made):
            return None
        return [each for each, key in made if key not in old]

    def _node(self, call: Call, operator: FlowOperator, inputs: list[Value], *, sink: bool) -> Node:
        flow = self.flow
        in_step = self._context.in_step
        path, spots, others = self.stacks.here() if in_step else _NOWHERE
        self._uploads = "upload" in others
        running = self.backward
        if running is not None and not path:
            path = running[1]
        node = Node(
            number=len(flow.nodes),
            step=self._context.step,
            path=path,
            op=operator.name,
            work=0,
            inputs=tuple(dict.fromkeys(inputs)),
            backward=None if running is None else running[0],
            sink=sink or "sending" in others,
            compiled="compiled" in others,
            product=operator.product,
            after=self.backwards,
            spots=spots,
        )
        flow.nodes.append(node)
        if len(flow.nodes) >= MOST_NODES:
            self.blind = f"the watched steps run more than {MOST_NODES} operators"
        return node

    def _place(
        self, node: Node, call: Call, operator: FlowOperator, made: list[torch.Tensor]
    ) -> None:
        """Where in the graph it stands, what it copies, and whether it was there before."""
        given = call.given
        if node.backward is not None:
            here = current_node()
            node.forward = None if here is None else number_of(here)
            return
        if call.graph:
            node.graph, node.forward = True, next_number() - 1
            node.records = self._records(given)
        source = next((each for each in given if each.device.type == "cpu" and each.dim()), None)
        into = made or given[:1]
        if (
            operator.name in ("to_copy", "copy")
            and source is not None
            and (self._uploads or any(each.device.type not in ("cpu", "meta") for each in into))
        ):
            dtype = str(source.dtype).removeprefix("torch.")
            node.copied = f"{dtype}{list(source.shape)}"
            node.nbytes = source.nbytes
        if not node.sink and not operator.random and not node.fixed and made:
            known = self._seen.setdefault((node.step, node.recipe), {})
            node.repeats = _repeated(node, known)
            known.setdefault(node.records, node)

    def _records(self, given: list[torch.Tensor]) -> int:
        """A number that graphs share which go back to the same leaves."""
        leaves = {
            hash(("leaf", storage_key(each))) if each.is_leaf else self.value(each).records
            for each in given
            if each.requires_grad
        }
        return leaves.pop() if len(leaves) == 1 else hash(frozenset(leaves))

    def _write(self, tensor: torch.Tensor, node: Node) -> None:
        if storage_key(tensor) is None:
            return
        held = self.flow.held.of(tensor)
        value = Value(node, node.recipe, node.fixed, records=node.records)
        node.made.append(value)
        if held is None:
            self.flow.held.lay(tensor, Held(value, -1))
            return
        before = held.value
        if before.fixed and before.node is not None and not node.fixed:
            before.node.spoiled = True
        if before.node is not None and before not in node.inputs:
            before.node.replaced = True
        held.value = value

    # -- recipes -----------------------------------------------------------------------------------

    def _recipe(self, call: Call, operator: FlowOperator, over: set[int]) -> int | None:
        """A number that calls share that make the same of the same; None if it is not known."""
        try:
            given = self._frozen((call.args, call.kwargs), operator, over)
            return hash((call.operator.func, given, torch.is_autocast_enabled()))
        except TypeError:
            return None

    def _frozen(self, what: Any, operator: FlowOperator, over: set[int]) -> Any:
        if isinstance(what, torch.Tensor):
            geometry = (tuple(what.shape), what.dtype, what.device)
            if operator.like or id(what) in over:
                return geometry
            inner = plain(what)
            try:
                where = (inner.storage_offset(), inner.stride())
            except (NotImplementedError, RuntimeError):
                return self._new()
            value, held = self.value(what), self.flow.held.of(what)
            if held is not None and held.escaped:
                return self._new()  # whoever has its address may have written there
            return value.recipe, geometry, where
        if isinstance(what, (list, tuple)):
            return tuple([self._frozen(each, operator, over) for each in what])
        if isinstance(what, dict):
            return tuple([(key, self._frozen(each, operator, over)) for key, each in what.items()])
        return type(what), what

    def _fresh(self, tensor: torch.Tensor) -> None:
        """``torch.tensor(...)``: what the host made, compared by its bytes."""
        value = self.value(tensor)
        inner = plain(tensor)
        if inner.device.type == "cpu" and inner.nbytes <= HOST_BYTES and inner.is_contiguous():
            value.recipe, value.fixed = (
                hash((content(inner), inner.dtype, tuple(inner.shape))),
                CONSTANT,
            )

    # -- other writers -----------------------------------------------------------------------------

    def _unseen(
        self, operator: FlowOperator, read: list[torch.Tensor], written: list[torch.Tensor]
    ) -> None:
        """Memory without a known writer is read: operators that are not seen wrote it."""
        targets = {storage_key(each) for each in written}
        for each in read:
            value = self.find(each)
            if (
                value is not None
                and value.raw
                and storage_key(each) not in targets
                and each.numel()
            ):
                self.blind = (
                    f"something wrote into a tensor of torch.empty before {operator.name} read it, "
                    "past torch's operators"
                )


def _upload() -> CodeType:
    """What the shadow device runs to copy a host tensor to itself."""
    from auditor.capture.shadow.tensor import to_device

    return to_device.__code__


def _repeated(node: Node, known: dict[int, Node]) -> Node | None:
    """Which of these calls made the same: with a graph to the same leaves, or one without."""
    if node.records in known or not known:
        return known.get(node.records)
    return known.get(0) if node.records else next(iter(known.values()))


def _fills_storage(tensor: torch.Tensor) -> bool:
    size = storage_bytes(tensor)
    return size is not None and plain(tensor).nbytes >= size


FLOPS_PER_BYTE = 8
"""Operations for one byte moved: of the order of a CPU's, less than a GPU's."""

CALL_BYTES = 1 << 14
"""What the host's price for a call is worth in bytes: some us at some GB/s."""

OVERWRITING = OVERWRITES | {"foreach_zero"}
"""Operators that need nothing of what they write into."""

FILLS = frozenset(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full zero fill".split()
)
"""Operators whose result is little more than memory for what is written next."""

LIKE = frozenset(["ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"])
"""Operators that need no more than the shape of what they are given."""

FUSED = frozenset(["transformer_encoder_layer_fwd", "native_multi_head_attention"])
"""Products in one operator, without gradients, that torch's counter of operations leaves out."""

_NORM_INPUTS = 7
"""Places of batch norm's arguments before ``eps``: statistics 4 and 5, training 6."""


class FlowOperator:
    """What is constant about an operator."""

    def __init__(self, operator: Operator) -> None:
        schema = operator.schema
        self.name = operator.name
        self.view = self.name == "set" or operator.view
        self.fresh = self.name == "lift_fresh"
        self.raw = self.name.startswith(("empty", "new_empty"))
        self.overwrites = self.name in OVERWRITING
        self.like = self.name in LIKE
        tags = getattr(operator.func, "tags", ())
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.sink = (
            operator.namespace != "aten"
            or self.name in {"local_scalar_dense", "is_nonzero", "equal", "item"}
            or torch.Tag.dynamic_output_shape in tags
            or not (schema.is_mutable or any("Tensor" in str(r.type) for r in schema.returns))
        )
        self._norm = (
            "batch_norm" in self.name and not operator.writes and "backward" not in self.name
        )
        packet = getattr(operator.func, "overloadpacket", None)
        self._flops: Callable[..., int] | None = flop_counter.flop_registry.get(packet)
        self.product = self._flops is not None or self.name in FUSED

    def statistics(self, args: tuple[Any, ...]) -> list[torch.Tensor]:
        """Running statistics that a batch norm updates in training."""
        trains = self._norm and len(args) >= _NORM_INPUTS and args[5] is True
        return tensors(args[3:5]) if trains else []

    def work(self, call: Call, nbytes: int) -> int:
        """What a call is worth in bytes: those that it moves, its operations and the call."""
        flops = 0
        if self._flops is not None:
            try:
                flops = int(self._flops(*call.args, **call.kwargs, out_val=call.result))
            except Exception:  # a formula that does not know this call
                flops = 0
        elif self.product:  # each row of the first tensor through each matrix
            x, *others = call.given
            rows = x.numel() // max(1, x.shape[-1])
            flops = 2 * rows * sum(each.numel() for each in others if each.dim() == 2)
        return nbytes + flops // FLOPS_PER_BYTE + CALL_BYTES


CONSTANT, WEIGHTS = 1, 2

Path = tuple[int, ...]
"""The user's lines on the stack, as sites of the recording, outermost first."""


@dataclass(eq=False, slots=True)
class Node:
    """One call of an operator."""

    number: int
    step: int
    path: Path
    op: str
    work: int
    inputs: tuple[Value, ...]
    backward: int | None
    """Which backward of the pass it ran in; None: none."""
    sink: bool = False
    """Somebody else sees what it reads: the host, another process, a library."""
    fixed: int = 0
    """``CONSTANT``: its results are the same whatever the batch and the parameters hold; ``WEIGHTS``:
    and frozen parameters are among what it computes them from.
    """
    compiled: bool = False
    """It ran under ``torch.compile``, which drops unneeded results by itself."""
    graph: bool = False
    spots: tuple[tuple[int, int], ...] = ()
    """As ``path``, but the expressions of a line are apart."""
    records: int = 0
    """By which leaves its graph is known; 0: it has none."""
    after: int = 0
    """How many backwards had begun before it."""
    product: bool = False
    """Of matrices, a convolution or an attention."""
    nbytes: int = 0
    """Bytes of its results."""
    copied: str = ""
    """What was copied from the host to the device, in words."""
    recipe: int = 0
    forward: int | None = None
    """Of one that ran in a backward: number of its node in the graph."""
    repeats: Node | None = None
    """An earlier call of the same step with the same operands."""
    replaced: bool = False
    """What it made was overwritten whole."""
    spoiled: bool = False
    """What it made was written into later, with something that is not fixed."""
    made: list[Value] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Value:
    """What a storage held from one write to the next."""

    node: Node | None
    recipe: int
    fixed: int = 0
    raw: bool = False
    """Nobody has written it yet."""
    records: int = 0
    """Which leaves its graph goes back to, as a number; 0: it has none."""


@dataclass(eq=False, slots=True)
class Held:
    """What a storage holds now."""

    value: Value
    step: int
    """In which it was made; -1: before the pass."""
    escaped: bool = False
    """Its address is known elsewhere: later reads are not seen."""


@dataclass(eq=False)
class Flow:
    """All that was seen in a pass."""

    nodes: list[Node] = field(default_factory=list)
    held: Storages[Held] = field(default_factory=Storages)
    kept: list[Value] = field(default_factory=list)
    """Values that left the flow: numbers for NumPy, what the target returned."""
    stored: list[Value] = field(default_factory=list)
    """Values that outlived their step in more than a local variable."""
    threads: bool = False
    """The program has threads of its own: what they read is not seen."""

    def roots(self, *, until: int, stored: bool) -> list[Value]:
        """What is there at the end of the pass, of steps before ``until``; and, with ``stored``,
        what outlived its step.
        """
        return [
            *self.kept,
            *(self.stored if stored else ()),
            *(
                each.value
                for _, each, there in self.held.items()
                if each.escaped
                or (there and (each.value.node is None or each.value.node.step < until))
            ),
        ]

    def survivors(self, step: int) -> Iterator[tuple[int | None, Value]]:
        """Storages that were made or written in this step and are still there, with what they hold:
        a buffer that the next step writes over may be read in between, in a step that is not seen.
        """
        return (
            (key, each.value)
            for key, each, there in self.held.items()
            if there and step in (each.step, each.value.node.step if each.value.node else -1)
        )

    def sinks(self) -> list[Node]:
        """Calls that another watch sees."""
        return [node for node in self.nodes if node.sink]


@dataclass(frozen=True)
class Reached:
    """What values and nodes went into something."""

    nodes: frozenset[Node]
    values: frozenset[Value]


def behind(values: Iterable[Value], nodes: Iterable[Node] = ()) -> Reached:
    """All that went into these values, and into what these calls read."""
    seen_nodes, seen_values = set[Node](), set[Value]()
    waiting = list(values)
    for node in nodes:
        seen_nodes.add(node)
        waiting.extend(node.inputs)
    while waiting:
        value = waiting.pop()
        if value in seen_values:
            continue
        seen_values.add(value)
        made = value.node
        if made is not None and made not in seen_nodes:
            seen_nodes.add(made)
            waiting.extend(made.inputs)
    return Reached(frozenset(seen_nodes), frozenset(seen_values))
