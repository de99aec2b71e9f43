"""Which part of a checkpoint's tree is an optimizer, a scheduler, a scaler, a counter: told by its
keys, as torch names them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from auditor.checkpoints.contents import (
    COUNT,
    OptimizerFacts,
    SchedulerFacts,
    Stored,
    TensorFacts,
    printable,
)
from auditor.checkpoints.pickles import walk

Path = tuple[str | int, ...]

COUNTERS = frozenset(
    {
        "step",
        "steps",
        "global_step",
        "num_steps",
        "iter",
        "iters",
        "iteration",
        "iter_num",
        "n_iter",
        "it",
    }
)
EPOCHS = frozenset({"epoch", "epochs", "current_epoch"})
"""Keys (and those of ``COUNTERS``) under which trainers save how far they are."""

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval"}
SCHEDULER = ({"last_epoch", "base_lrs"}, {"last_epoch", "_last_lr"})
MODULE_DICTS = frozenset({"_modules", "_parameters", "_buffers"})
RNG_WORDS = ("rng", "random_state", "generator")


def named(path: Path) -> str:
    """A path in words: ``optimizer.state[3].exp_avg``; of a module that was pickled whole, as
    ``state_dict`` names it.
    """
    text = "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}" for key in path if key not in MODULE_DICTS
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
    scaler: bool = False
    rng: bool = False

    def role(self, path: Path) -> str:
        """Whose tensor it is: ``optimizer``, ``model`` or ``other``."""
        if any(path[: len(owner)] == owner for owner in self.optimizers):
            return "optimizer"
        return "model" if path[:-1] in self.weights and not _is_rng(path) else "other"


def structure(tree: Any) -> Structure:
    """Walk the tree once."""
    found = Structure()
    for path, value in walk(tree):
        found.rng = found.rng or _is_rng(path)
        if isinstance(value, Stored):
            found.tensors.append((path, value))
        elif isinstance(value, dict):
            _sort_in(found, path, value)
        elif _lists_weights(value):
            found.weights.add(path)
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and len(path) <= 2
            and path[-1:]
            and path[-1] in COUNTERS | EPOCHS
        ):
            found.progress[str(path[-1])] = value
    found.progress = {name: n for name, n in found.progress.items() if 0 <= n < COUNT}
    return found


def _sort_in(found: Structure, path: Path, value: dict[Any, Any]) -> None:
    keys = {key for key in value if isinstance(key, str)}
    if {"state", "param_groups"} <= keys and isinstance(value["param_groups"], list):
        found.optimizers[path] = value
    elif any(names <= keys for names in SCHEDULER):
        found.schedulers[path] = value
    elif keys >= SCALER:
        found.scaler = True
    elif _holds_weights(path, value):
        found.weights.add(path)


def _lists_weights(value: Any) -> bool:
    """A list of tensors that are not all numbers: the shadow weights of an average, but not a
    history of losses.
    """
    return (
        isinstance(value, list)
        and all(isinstance(each, Stored) for each in value)
        and any(each.shape for each in value)
    )


def _holds_weights(path: Path, value: dict[Any, Any]) -> bool:
    """A state dict: hardly anything but tensors. At the root its names must have dots, or nothing
    else is there.
    """
    tensors = [key for key, each in value.items() if isinstance(each, Stored)]
    if not tensors or len(tensors) < 0.5 * len(value):
        return False
    return bool(path) or len(tensors) == len(value) or any("." in str(key) for key in tensors)


def _is_rng(path: Path) -> bool:
    return bool(path) and any(
        isinstance(key, str) and any(word in key.lower() for word in RNG_WORDS) for key in path[:3]
    )


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
