"""Learning rates that loading an optimizer's state brings back, over those that the program was started with."""

from __future__ import annotations

import functools
import inspect
import weakref
from dataclasses import dataclass
from typing import Any

from torch.optim.optimizer import Optimizer

from auditor.capture.optimizers import OptimizerProbe, groups_of
from auditor.capture.patching import Patches
from auditor.capture.probe import Context

Rates = list[dict[str, float]]
"""For each parameter group its rates by name; one that is a tensor is left out."""

NAMES = ("lr", "initial_lr", "max_lr")


@dataclass
class _Loaded:
    """The last load of one optimizer's state. ``ran``: the rates of its first step after that."""

    at: int | None
    before: Rates
    after: Rates
    ran: Rates | None = None


class RatesProbe(OptimizerProbe):
    """Writes ``rates`` at the end of the pass: one row for each optimizer that loaded a state and stepped since.

    A state that is loaded inside a step is the program's own (a step that is taken back), and no checkpoint.
    """

    name = "rates"
    parts = ("rates",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._loaded: weakref.WeakKeyDictionary[Optimizer, _Loaded] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Notice every load: checkpoints are loaded before the first step."""
        super().install()
        original = Optimizer.load_state_dict

        @functools.wraps(original)
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = _rates(optimizer)
            result = original(optimizer, *args, **kwargs)
            if not self.context.in_step:
                self._loaded[optimizer] = _Loaded(self.context.frames.here(), before, _rates(optimizer))
            return result

        self._patches.attribute(Optimizer, "load_state_dict", load_state_dict)

    def uninstall(self) -> None:
        """Put the method back."""
        self._patches.undo()
        super().uninstall()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Note the rates of the first step after a load."""
        loaded = self._loaded.get(optimizer)
        if loaded is not None and loaded.ran is None:
            loaded.ran = _rates(optimizer)

    def stop(self) -> None:
        """Write the rows. May be called twice; the part stays absent where nothing was loaded."""
        for optimizer, loaded in list(self._loaded.items()):
            if loaded.ran is not None:
                self.context.add("rates", _row(optimizer, loaded))
        self._loaded.clear()


def _rates(optimizer: Optimizer) -> Rates:
    return [{name: float(group[name]) for name in NAMES if _is_number(group.get(name))} for group in groups_of(optimizer)]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _row(optimizer: Optimizer, loaded: _Loaded) -> dict[str, Any]:
    default = inspect.signature(type(optimizer).__init__).parameters.get("lr")
    return {
        "at": loaded.at,
        "optimizer": type(optimizer).__name__,
        "default": default.default if default is not None and _is_number(default.default) else None,
        "before": loaded.before,
        "after": loaded.after,
        "ran": loaded.ran,
    }
