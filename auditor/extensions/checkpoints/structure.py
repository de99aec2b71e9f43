"""Which part of a checkpoint's tree is an optimizer, a scheduler, a scaler, a counter: told by its
keys, as torch names them.
"""

from __future__ import annotations

import cmath
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from auditor.evidence.scans import OptimizerFacts, Role, SchedulerFacts, Tally, TensorFacts
from auditor.extensions.checkpoints.contents import COUNT, Storage, Stored, printable
from auditor.extensions.checkpoints.described import complete, is_tensor
from auditor.extensions.checkpoints.marks import PARAMETER, Composite, Made, Meta
from auditor.extensions.checkpoints.pickles import walk

# -- keys ------------------------------------------------------------------------------------------
# What the keys on the way to a value say about it: that it is a result, a setting, a bound or a
# mask, or lies in a model. A key says so as a whole: ``log`` is a result, ``log_alpha`` is not.

Path = tuple[str | int, ...]

MODELS = frozenset({"model", "state_dict", "model_state_dict", "module", "net"})
"""Keys of weights, whatever else is among them."""

BOUNDS = frozenset(
    ["best", "worse", "max", "min", "maximum", "minimum", "clip", "threshold", "bound", "limit"]
)
"""Words of keys whose plain numbers may be infinite: nothing is beyond them."""

_WHEN = """
    best last final current running avg average total train training val valid validation test
    testing eval evaluation dev epoch step batch
"""
_WHAT = """
    loss losses metric metrics score scores stats statistics history log logs acc accuracy error
    psnr ssim iou miou f1 auc auroc perplexity ppl bleu wer cer mse rmse mae reward rewards
    grad_norm
"""
_RESULT = re.compile(
    rf"(?:(?:{'|'.join(_WHEN.split())})_)*(?:{'|'.join(_WHAT.split())})"
    r"(?:_(?:history|logs?|list|curve))?|early_?stop(?:ping|per)?|callbacks?"
)
_BOUND = re.compile(
    rf"(?:.*_)?(?:{'|'.join(sorted(BOUNDS))})s?(?:_(?:abs|fitness|grad|len|model|norm|so_far|vals?"
    rf"|values?|{'|'.join(_WHAT.split())}))*"
)
"""Keys of tensors that are bounds: behind the word stands at most what is bounded."""

_MASK = re.compile(
    r"(?:.*_)?(?:masks?|causal|alibi|(?:attn|attention|causal|alibi|logits?|masked)_bias)"
    r"|bad_words(?:_ids|_bias)?|(?:begin_)?suppress(?:_tokens|_ids|_logits)?"
)
_SETTINGS = re.compile(
    r"(?:.*_)?(?:config|cfg|conf|hparams|hyper_?param(?:eter)?s|args|kwargs|opts?|options|settings"
    r"|meta(?:data)?)"
)
_SEPARATOR = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[/ -]+")


@lru_cache(4096)
def _in_words(key: str) -> str:
    """A key in small letters, its words between underscores."""
    return _SEPARATOR.sub("_", key[:200]).lower()


@lru_cache(4096)
def _is_result(key: str) -> bool:
    return _RESULT.fullmatch(_in_words(key)) is not None


def among_results(path: Path) -> bool:
    """True where a key on the way says that results are kept there (``metrics``, ``best_loss``)."""
    return any(isinstance(key, str) and _is_result(key) for key in path)


def among_settings(path: Path) -> bool:
    """True where a key on the way says that the program's settings are kept there."""
    return any(isinstance(key, str) and _SETTINGS.fullmatch(_in_words(key)) for key in path)


def in_model(path: Path) -> bool:
    """True where a key on the way is one of a model."""
    return any(key in MODELS for key in path)


def may_be_nan(path: Path, dimensions: int) -> bool:
    """Results are numbers, or lists of them; of those in a model only single numbers are some."""
    return among_results(path) and (dimensions == 0 or (dimensions == 1 and not in_model(path)))


def is_bound(path: Path) -> bool:
    """True for a key whose plain numbers may be infinite."""
    return not BOUNDS.isdisjoint(_last(path).split("_"))


def may_be_infinite(path: Path, tally: Tally | None, dimensions: int) -> bool:
    """True where something is infinite and may be so: bounds, in numbers or a list of them; masks,
    which forbid, beside what they let pass.
    """
    if tally is None or tally.nan or not tally.nonfinite:
        return False
    masks = not tally.positive_inf and tally.low is not None
    key = _last(path)
    bound, mask = _BOUND.fullmatch(key) is not None, _MASK.fullmatch(key) is not None
    return (bound and dimensions <= 1) or (mask and masks)


def _last(path: Path) -> str:
    """The last part of the last key, in words."""
    last = next((key for key in reversed(path) if isinstance(key, str) and key), "")
    return _in_words(last.rpartition(".")[2])


COUNTERS = frozenset(
    "step steps global_step num_steps iter iters iteration iter_num n_iter it".split()
)
EPOCHS = frozenset({"epoch", "epochs", "current_epoch"})
"""Keys (and those of ``COUNTERS``) under which trainers save how far they are."""

PLAIN = "float"
"""In the place of a dtype, of a plain number."""

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval"}
SCHEDULER = ({"last_epoch", "base_lrs"}, {"last_epoch", "_last_lr"})
MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
RNG_WORDS = ("rng", "random_state", "generator")


def named(path: Path) -> str:
    """A path in words: ``optimizer.state[3].exp_avg``; of a module that was pickled whole, as
    ``state_dict`` names it.
    """
    text = "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}"
        for key in path
        if (key and key not in MODULE_DICTS) or key == 0
    )
    return printable(text.removeprefix("."))[:200] or "(the file)"


@dataclass
class Structure:
    """Parts of one tree by their path, and its tensors in order."""

    optimizers: dict[Path, dict[str, Any]] = field(default_factory=dict)
    schedulers: dict[Path, dict[str, Any]] = field(default_factory=dict)
    weights: set[Path] = field(default_factory=set)
    tensors: list[tuple[Path, Stored]] = field(default_factory=list)
    progress: dict[str, int] = field(default_factory=dict)
    composites: dict[Path, Composite] = field(default_factory=dict)
    parameters: set[Path] = field(default_factory=set)
    numbers: list[tuple[Path, float]] = field(default_factory=list)
    scalers: set[Path] = field(default_factory=set)
    untyped: list[str] = field(default_factory=list)
    without_numbers: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    rng: bool = False

    def role(self, path: Path, tally: Tally | None, dimensions: int) -> Role:
        """Whose tensor it is: ``optimizer``, ``model`` or ``other``. A bound or a mask is nobody's
        while it is infinite (of observers that saw nothing), but a parameter is a weight.
        """
        if any(path[: len(owner)] == owner for owner in self.optimizers):
            return "optimizer"
        learned = self._learned(path)
        if not learned and may_be_infinite(path, tally, dimensions):
            return "other"
        if learned:
            return "model"
        heads = (path[:length] for length in range(len(path)))
        path = next((head for head in heads if head in self.composites), path)
        while len(path) > 1 and isinstance(path[-1], int) and path[:-1] not in self.weights:
            path = path[:-1]  # in a list among weights
            if among_results(path):
                return "other"
        return "model" if not path or path[:-1] in self.weights else "other"

    def unclear(self, facts: TensorFacts) -> bool:
        """Whether a tensor holds NaN or infinities and nothing says what it is: no weight by its
        place, no result, bound or mask by its key.
        """
        tally, dimensions = facts.tally, len(facts.shape)
        return (
            facts.role == "other"
            and tally is not None
            and tally.nonfinite > 0
            and not may_be_infinite(facts.place, tally, dimensions)
            and not may_be_nan(facts.place, dimensions)
        )

    def odd(self) -> list[TensorFacts]:
        """Plain numbers that are not finite, and may not be so. Of those that belong to no optimizer,
        scheduler or scaler and are no values of a state dict the role is ``other``.
        """
        return [
            TensorFacts(named(path), PLAIN, (), role, _tally(number), path)
            for path, number in self.numbers
            if (math.isnan(number) or not is_bound(path))
            and (role := self._role_of_number(path, number)) is not None
        ]

    def _role_of_number(self, path: Path, number: float) -> Role | None:
        """Whose plain number it is; None if it is a result or a setting, or infinite and alone."""
        if any(path[: len(each)] == each for each in self._owners):
            return "optimizer"
        if may_be_nan(path, 0) or among_settings(path):
            return None
        place = path
        while place and isinstance(place[-1], int):
            place = place[:-1]  # in a list
        if self._learned(path) or (len(place) > 1 and place[:-1] in self.weights):
            return "model"
        return "other" if math.isnan(number) or place != path else None

    @property
    def _owners(self) -> tuple[Path, ...]:
        return (*self.optimizers, *self.schedulers, *self.scalers)

    def _learned(self, path: Path) -> bool:
        """Whether it is a parameter, or an attribute of one."""
        return any(path[:length] in self.parameters for length in range(len(path) + 1))


def _tally(number: float) -> Tally:
    return Tally(1, int(math.isnan(number)), int(number == math.inf), int(number == -math.inf))


def structure(tree: Any) -> Structure:
    """Walk the tree once; what lies among results and elsewhere too is looked at in both places."""
    found = Structure()
    for path, value in walk(tree, among_results, found.left):
        found.rng = found.rng or _is_rng(path)
        if isinstance(value, (Storage, Stored, Composite, Meta)):
            _take_tensor(found, path, value)
        elif isinstance(value, (dict, Made)):
            _sort_in(found, path, value if isinstance(value, dict) else _parts(value))
        elif isinstance(value, (int, float, complex)):
            _take_number(found, path, value)
        elif _lists_weights(value) and not among_results(path):
            found.weights.add(path)
    found.progress = {name: n for name, n in found.progress.items() if 0 <= n < COUNT}
    return found


def _take_tensor(found: Structure, path: Path, value: Any) -> None:
    if isinstance(value, Storage):
        found.tensors.append((path, complete(value)))
        if value.dtype == "bytes":
            found.untyped.append(named(path))
    elif isinstance(value, Stored):
        found.tensors.append((_whole(path), value))
    elif isinstance(value, Composite):
        found.composites[path] = value
        if value.origin == PARAMETER:
            found.parameters.add(_whole(path))
    elif type(value) is Meta or path[-1:] != ("",):
        found.without_numbers.append(named(path))


def _take_number(found: Structure, path: Path, value: complex) -> None:
    if isinstance(value, int):
        counts = len(path) in (1, 2) and path[-1] in COUNTERS | EPOCHS
        if counts and not isinstance(value, bool):
            found.progress[str(path[-1])] = value
    elif not cmath.isfinite(value):
        found.numbers.append((path, value if isinstance(value, float) else math.nan))


def _whole(path: Path) -> Path:
    """The path of the tensor whose numbers are found there."""
    while path[-1:] == ("",):
        path = path[:-1]
    return path


def _parts(made: Made) -> dict[Any, Any]:
    """Attributes of an object, and the values in it by their number."""
    parts: dict[Any, Any] = {}
    for number, part in enumerate(made.parts):
        parts.update(part if isinstance(part, dict) else {number: part})
    return parts


def _sort_in(found: Structure, path: Path, value: dict[Any, Any]) -> None:
    keys = {key for key in value if isinstance(key, str)}
    if {"state", "param_groups"} <= keys and isinstance(value["param_groups"], list):
        found.optimizers[path] = value
    elif any(names <= keys for names in SCHEDULER):
        found.schedulers[path] = value
    elif keys >= SCALER:
        found.scalers.add(path)
    elif _holds_weights(path, value):
        found.weights.add(path)


def _lists_weights(value: Any) -> bool:
    """A list of tensors that are not all numbers: the shadow weights of an average, but not a
    history of losses.
    """
    several = isinstance(value, (list, tuple))
    return several and all(map(is_tensor, value)) and any(map(_has_shape, value))


def _has_shape(value: Any) -> bool:
    return isinstance(value, Composite) or bool(value.shape)


def _holds_weights(path: Path, value: dict[Any, Any]) -> bool:
    """A state dict: hardly anything but tensors, not all of them numbers. At the root its names
    must have dots, or nothing else is there; among results one must be that of a layer.
    """
    if among_results(path) and not any(_of_layer(key) for key in value):
        return False
    tensors = {key: each for key, each in value.items() if is_tensor(each)}
    if any(map(_of_layer, tensors)):
        return True
    few = len(tensors) < 0.5 * len(value) and not in_model(path[-1:])
    if not tensors or few:
        return False
    if not any(map(_has_shape, tensors.values())) and is_bound(path):
        return False
    return bool(path) or len(tensors) == len(value) or any("." in str(key) for key in tensors)


def _of_layer(key: Any) -> bool:
    return isinstance(key, str) and key.rpartition(".")[2] in ("weight", "bias")


def _is_rng(path: Path) -> bool:
    """True for a key of a random state, near the root."""
    key = path[-1] if 0 < len(path) <= 3 else 0
    return isinstance(key, str) and any(word in key.lower() for word in RNG_WORDS)


# -- facts of each part ----------------------------------------------------------------------------


def optimizer_facts(
    path: Path, state: dict[str, Any], tensors: list[TensorFacts]
) -> OptimizerFacts:
    """Plain numbers of the groups; the steps are those that its own counters reached."""
    groups = tuple(_numbers(group) for group in state["param_groups"] if isinstance(group, dict))
    counts = [
        facts.scalar
        for facts in tensors
        if facts.place[: len(path)] == path and facts.place[-1] == "step"
    ]
    plain = state["state"].values() if isinstance(state["state"], dict) else ()
    counts += [
        each.get("step")
        for each in plain
        if isinstance(each, dict) and isinstance(each.get("step"), (int, float))
    ]
    reached = [int(each) for each in counts if each is not None and abs(each) < COUNT]
    parameters = sum(
        len(group["params"]) for group in state["param_groups"] if _lists_parameters(group)
    )
    return OptimizerFacts(named(path), groups, parameters, max(reached, default=None))


def _lists_parameters(group: Any) -> bool:
    return isinstance(group, dict) and isinstance(group.get("params"), list)


def _numbers(group: dict[Any, Any]) -> dict[str, float]:
    return {
        printable(str(key)[:200]): float(each) for key, each in group.items() if _is_number(each)
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def scheduler_facts(path: Path, state: dict[str, Any]) -> SchedulerFacts:
    """Rates and position; ``total`` where the schedule has an end (OneCycleLR, CosineAnnealingLR
    has none that it keeps to).
    """
    position, total = state.get("last_epoch"), state.get("total_steps")
    return SchedulerFacts(
        named(path),
        _rates(state.get("base_lrs")),
        _rates(state.get("_last_lr")),
        position if isinstance(position, int) and abs(position) < COUNT else None,
        total if isinstance(total, int) and abs(total) < COUNT else None,
    )


def _rates(value: Any) -> tuple[float, ...]:
    return (
        tuple(float(each) for each in value if _is_number(each))
        if isinstance(value, (list, tuple))
        else ()
    )
