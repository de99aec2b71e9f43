"""What was loaded, value by value: numbers that are not finite, and which part is an optimizer, a
scheduler, a scaler, a counter, told by its keys as torch names them.
"""

import cmath
import gc
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from auditor.evidence.scans import ElementCounts, OptimizerFacts, Role, SchedulerFacts, TensorFacts
from auditor.extensions.checkpoints import keys
from auditor.extensions.checkpoints.keys import Path, named
from auditor.extensions.checkpoints.standins import Array, Scalar, Standin, is_class, let_in

PIECE = 1 << 22
"""Elements that are looked at at once."""

PLAIN = frozenset(
    getattr(torch, name)
    for name in """
    float64 float32 float16 bfloat16 complex64 complex128 bool
    int64 int32 int16 int8 uint64 uint32 uint16 uint8
    """.split()
)
"""dtypes whose numbers are looked at."""

WHOLE = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors whose numbers are all in their storage."""

COUNTERS = frozenset(
    """
    step steps global_step num_steps iter iters iteration iter_num n_iter it
    epoch epochs current_epoch
    """.split()
)
"""Keys under which trainers save how far they are."""

DEPTH = 100
"""Containers in each other that are looked into."""

COUNT = 2**63
"""Counters of a real file are smaller."""

NUMBER = "float"
"""In the place of a dtype, of a plain number."""

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval"}
SCHEDULER = ({"last_epoch", "base_lrs"}, {"last_epoch", "_last_lr"})
RNG_WORDS = ("rng", "random_state", "generator")
NOTHING = (
    *(int, str, bytes, bytearray, type(None)),
    *(torch.Size, torch.dtype, torch.device, torch.layout, torch.qscheme),
)
"""Values without numbers that could be wrong."""


def prepare() -> None:
    """Set torch up, once, for all children that are forked from here."""
    torch.set_num_threads(1)  # threads do not live on in a fork
    torch.sparse.check_sparse_tensor_invariants.enable()
    torch.serialization.add_safe_globals(let_in())
    gc.freeze()  # a collection in a child would copy all that it shares


class Walk:
    """Walks what was loaded; its attributes are what a ``Scan`` needs."""

    def __init__(self) -> None:
        self.tensors: list[TensorFacts] = []
        self.optimizers: dict[Path, dict[str, Any]] = {}
        self.schedulers: dict[Path, dict[str, Any]] = {}
        self.scalers: set[Path] = set()
        self.rng = False
        self.progress: dict[str, int] = {}
        self.storages: dict[int, int] = {}
        self._unread: dict[str, list[str]] = defaultdict(list)
        self._aside: list[str] = []
        self._states: set[Path] = set()
        self._tallies: dict[Any, ElementCounts] = {}
        self._seen: set[tuple[int, bool]] = set()

    @property
    def limits(self) -> tuple[str, ...]:
        """Sentences about what was not looked at, or of which nothing says what it is."""
        return tuple(f"{_several(names)} {why}" for why, names in self._unread.items())

    @property
    def aside(self) -> tuple[str, ...]:
        """What is not finite, and no damage."""
        if not self._aside:
            return ()
        return (f"{_several(self._aside)} is not finite: no weight, and no damage",)

    # -- values ------------------------------------------------------------------------------------

    def take(self, loaded: Any) -> None:
        """Walk it, parents before what they hold."""
        ahead: list[tuple[Path, Any]] = [((), loaded)]
        while ahead:
            path, value = ahead.pop()
            if len(path) > DEPTH:
                self._unread["lies too deep, and was not looked at"].append(named(path[:1]))
                continue
            self.rng = self.rng or _is_rng(path)
            if isinstance(value, (float, complex)):
                self._number(path, value)
                continue
            if isinstance(value, torch.Tensor):
                self.tensor(path, value)
            below = self._below(path, value)
            ahead += [((*path, _key(key)), each) for key, each in below if _may_hold(each)][::-1]

    def _below(self, path: Path, value: Any) -> Iterator[tuple[Any, Any]]:
        """What a value holds, once; among results and elsewhere it is looked at in both places."""
        mark = id(value), keys.among_results(path)
        if mark in self._seen:
            return
        self._seen.add(mark)
        if isinstance(value, torch.Tensor):
            yield from vars(value).items() if type(value) in WHOLE else ()
        elif isinstance(value, dict):
            self._sort_in(path, value)
            yield from dict.items(value)  # its own methods may be attributes of the file
            yield from getattr(value, "__dict__", {}).items()
            yield from (("key", key) for key in value)
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from enumerate(value)
        elif isinstance(value, (Array, Scalar)):
            self._array(path, value)
        elif isinstance(value, Standin):
            yield from value.parts()
        else:
            self._unread[f"is of {type(value).__name__}, and was not looked at"].append(named(path))

    def _array(self, path: Path, value: Array | Scalar) -> None:
        numbers = value.read()
        if isinstance(numbers, str):
            self._unread[f"{numbers}, and was not looked at"].append(named(path))
        elif numbers is None:
            return  # texts
        elif isinstance(value, Scalar):
            if _may_hold(numbers.item()):
                self._number(path, numbers.item())
        elif numbers.dtype.kind in "fc":
            self.tensor(path, torch.from_numpy(numbers), loaded=False)

    def tensor(self, path: Path, tensor: torch.Tensor, *, loaded: bool = True) -> None:
        """One tensor; ``loaded`` if its storage is one of the file."""
        # in a view of its own: attributes of a parameter may hide its methods
        plain = torch.Tensor.detach(tensor) if type(tensor) in WHOLE else None
        why = f"a {type(tensor).__name__}" if plain is None else _why_not(plain)
        tally, shape = None, tuple[int, ...]()
        if plain is None or why:
            self._unread[f"is {why}, and was not looked at"].append(named(path))
        else:
            shape, storage = tuple(plain.shape), plain.untyped_storage()
            if loaded and storage.nbytes():
                self.storages[storage.data_ptr()] = storage.nbytes()
            if _is_floating(plain):
                tally = self._tally(plain, kept=loaded)
        role = self._role(path, tensor, tally, len(shape))
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.tensors.append(TensorFacts(named(path), dtype, shape, role, tally, path))

    def _tally(self, tensor: torch.Tensor, *, kept: bool) -> ElementCounts:
        """What is in it; views of the same numbers are looked at once, while they are alive."""
        mark = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if not kept or mark not in self._tallies:
            self._tallies[mark] = _tally(tensor)
        return self._tallies[mark]

    def _role(
        self, path: Path, tensor: torch.Tensor, tally: ElementCounts | None, dimensions: int
    ) -> Role:
        """The tensor's role; empty if it is a result, or may hold non-finite values."""
        if any(path[: len(owner)] == owner for owner in self.optimizers):
            return "optimizer"
        if type(tensor) is torch.nn.Parameter:
            return "model"
        if tally is not None and tally.nonfinite and _may_be(path, tally, dimensions):
            self._aside.append(named(path))
            return "other"
        return "model" if _is_floating(tensor) and not _is_result(path, dimensions) else "other"

    def _number(self, path: Path, number: complex) -> None:
        """A plain number that is not finite."""
        lone = bool(path) and not isinstance(path[-1], int)
        infinite = not cmath.isnan(number)
        owners = (*self.optimizers, *self.schedulers, *self.scalers)
        owned = any(path[: len(each)] == each for each in owners)
        place = path
        while place and isinstance(place[-1], int):
            place = place[:-1]
        if infinite and keys.is_bound(path):
            if not owned:
                self._aside.append(named(path))
        elif owned or (len(place) > 1 and place[:-1] in self._states and not _is_result(path, 0)):
            counts = (0, number.real > 0, number.real <= 0) if infinite else (1, 0, 0)
            role: Role = "optimizer" if owned else "model"
            tally = ElementCounts(1, *map(int, counts))
            self.tensors.append(TensorFacts(named(path), NUMBER, (), role, tally, path))
        elif _is_result(path, 0) or keys.among_settings(path) or (infinite and lone):
            self._aside.append(named(path))
        else:
            self._unread["is not finite, and no key says what it is"].append(named(path))

    def _sort_in(self, path: Path, value: dict[Any, Any]) -> None:
        words = {key for key in value if isinstance(key, str)}
        if {"state", "param_groups"} <= words and isinstance(value["param_groups"], list):
            self.optimizers[path] = value
        elif any(names <= words for names in SCHEDULER):
            self.schedulers[path] = value
        elif words >= SCALER:
            self.scalers.add(path)
        elif any(isinstance(each, torch.Tensor) for each in dict.values(value)):
            self._states.add(path)
        if len(path) < 2:
            for key in COUNTERS & words:
                if type(value[key]) is int and 0 <= value[key] < COUNT:
                    self.progress[key] = value[key]


def _key(key: Any) -> str | int:
    if isinstance(key, (str, int)):
        return key
    return str(key) if isinstance(key, (float, torch.dtype, torch.device)) else type(key).__name__


def _may_hold(value: Any) -> bool:
    """Whether there is anything to look at: most values are plain ones."""
    if isinstance(value, (float, complex)):
        return not cmath.isfinite(value)
    return not (isinstance(value, NOTHING) or is_class(value))


def _several(names: list[str]) -> str:
    return names[0] + f" (and {len(names) - 1} more)" * (len(names) > 1)


def _is_rng(path: Path) -> bool:
    key = path[-1] if 0 < len(path) <= 3 else 0
    return isinstance(key, str) and any(word in key.lower() for word in RNG_WORDS)


# -- tensors ---------------------------------------------------------------------------------------


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _is_result(path: Path, dimensions: int) -> bool:
    """Results are numbers, or lists of them; of those in a model only single numbers are some."""
    return keys.among_results(path) and (
        dimensions == 0 or (dimensions == 1 and keys.MODELS.isdisjoint(path))
    )


def _may_be(path: Path, tally: ElementCounts, dimensions: int) -> bool:
    """Whether what is not finite may be so: results, bounds, minus infinity in a mask."""
    if _is_result(path, dimensions):
        return True
    if tally.nan:
        return False
    mask = keys.is_mask(path) and not tally.positive_inf and tally.low is not None
    return mask or (keys.is_bound(path) and dimensions <= 1)


def _why_not(tensor: torch.Tensor) -> str:
    """Why the numbers of a tensor are not looked at; empty of a plain dense one."""
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return f"of the layout {tensor.layout}".replace("torch.", "")
    if tensor.device.type != "cpu":
        return f"of the device {tensor.device.type}, which has no numbers"
    if tensor.dtype not in PLAIN:
        return f"of {tensor.dtype}".replace("torch.", "")
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "expanded beyond its storage"
    return ""


def _tally(tensor: torch.Tensor) -> ElementCounts:
    total = ElementCounts()
    for piece in _pieces(tensor):
        total += _counted(piece)
    return total


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of it that are small enough to be copied."""
    if tensor.numel() <= PIECE:
        if tensor.numel():
            yield tensor
        return
    axis = max(range(tensor.dim()), key=lambda each: tensor.shape[each])
    rows = max(1, tensor.shape[axis] * PIECE // tensor.numel())
    for part in tensor.split(rows, axis):
        yield from _pieces(part)


def _counted(piece: torch.Tensor) -> ElementCounts:
    """Its smallest and largest number first, which a NaN or an infinity cannot hide from."""
    if piece.is_complex():
        piece = torch.view_as_real(piece.resolve_conj())
    low, high = (each.item() for each in torch.aminmax(piece.resolve_neg()))
    if math.isfinite(low) and math.isfinite(high):
        return ElementCounts(piece.numel(), low=low, high=high)
    finite = piece[piece.isfinite()]
    ends = [each.item() for each in finite.aminmax()] if finite.numel() else [None, None]
    positive, negative = (int((piece == end).sum()) for end in (math.inf, -math.inf))
    nan = piece.numel() - finite.numel() - positive - negative
    return ElementCounts(piece.numel(), nan, positive, negative, *ends)


# -- facts of each part ----------------------------------------------------------------------------


def optimizer_facts(
    path: Path, state: dict[str, Any], tensors: list[TensorFacts]
) -> OptimizerFacts:
    """Plain numbers of the groups; the steps are those that its own counters reached."""
    groups = [group for group in state["param_groups"] if isinstance(group, dict)]
    counts: list[Any] = [
        facts.scalar
        for facts in tensors
        if facts.place[: len(path)] == path and facts.place[-1] == "step"
    ]
    plain = dict.values(state["state"]) if isinstance(state["state"], dict) else ()
    counts += [dict.get(each, "step") for each in plain if isinstance(each, dict)]
    return OptimizerFacts(
        named(path),
        tuple(_numbers(group) for group in groups),
        max((int(each) for each in counts if _is_number(each)), default=None),
    )


def _numbers(group: dict[Any, Any]) -> dict[str, float]:
    return {
        keys.printable(str(key)[:200]): float(each)
        for key, each in dict.items(group)
        if _is_number(each)
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18


def scheduler_facts(path: Path, state: dict[str, Any]) -> SchedulerFacts:
    """Rates and position; ``total`` where the schedule has an end (OneCycleLR)."""
    rates = dict.get(state, "base_lrs")
    base = [float(each) for each in rates if _is_number(each)] if isinstance(rates, list) else []
    position, total = (
        each if isinstance(each, int) and _is_number(each) else None
        for each in (dict.get(state, "last_epoch"), dict.get(state, "total_steps"))
    )
    return SchedulerFacts(named(path), tuple(base), position, total)
