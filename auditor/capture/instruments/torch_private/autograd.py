"""Torch's autograd: the engine's entry, nodes and their numbers, saved tensors, its state."""

import sys
from collections.abc import Callable
from operator import attrgetter, methodcaller
from types import FunctionType
from typing import Any, Final

import torch
from torch.autograd import forward_ad

from auditor.capture.instruments.torch_private.look_up import on_instances, private

# -- the engine ------------------------------------------------------------------------------------

ENGINE: Final = "_engine_run_backward"
"""The name of the Python function through which torch enters its engine, as it is in call
stacks. Without it: the user's line in a backward is that of the call of ``backward``, and reads
inside the engine count as the user's."""

engine: FunctionType | None = private(f"torch.autograd.graph.{ENGINE}")
"""That function. Without it: ``torch.autograd.backward`` and ``grad`` are watched instead."""

current_node: Callable[[], Any] = private("torch._C._current_autograd_node", lambda: None)
"""The node of the backward that runs in this thread; None outside of one. Without it: None, so an
operator of a backward is not told from one of the forward."""

running_backward: Callable[[], int] = private("torch._C._current_graph_task_id", lambda: -1)
"""The number of the backward that runs in this thread; -1 outside of one. Without it: -1, so an
optimizer that steps inside a backward (by a hook of gradients) ends the step there and not after
it."""

# -- nodes -----------------------------------------------------------------------------------------

next_number: Callable[[], int] = private("torch._C._autograd._get_sequence_nr", lambda: 0)
"""The number that the next node of this thread gets. Without it: 0, so no module is named for a
node, infinite gradients at a pole are not reported, and no trace is called full."""

_ask_number = on_instances("torch.autograd.graph.Node._sequence_nr")


def _nodes_have_numbers() -> bool:
    """Asked of a node: torch 2.6 does not have it on the class."""
    with torch.enable_grad():
        return _ask_number(torch.zeros(1, requires_grad=True).sum().grad_fn) is not None


number_of: Callable[[Any], int] = (
    methodcaller("_sequence_nr") if _nodes_have_numbers() else lambda node: -1
)
"""The number of a node. Without ``Node._sequence_nr``: -1, as without :data:`next_number`."""

SAVED: Final = "_raw_saved_"
"""How the attributes of a node begin that hold saved tensors, not unpacked. Without them: a graph
weighs what its custom functions keep."""

REDUCTION: Final = "_saved_reduction"
"""The attribute of a loss's node for its reduction, 1 for the mean. Without it: not known."""

OTHER: Final = "_saved_other"
"""The attribute of a product's or quotient's node that holds its second operand. Without it: what
such a node multiplies by is not known."""

METADATA: Final = "_input_metadata"
"""The attribute of a node that says which shapes its results have. Without it: they are not known."""

CAN_WEIGH: Final[bool] = private("torch._C._autograd.SavedTensor.data") is not None
"""Saved tensors can be seen without unpacking. Without it: no graph has a weight."""

# -- forward mode ----------------------------------------------------------------------------------

_LEVEL: Final = "torch.autograd.forward_ad._current_level"
_level: Callable[[Any], int] = (
    (lambda module: 0) if private(_LEVEL) is None else attrgetter("_current_level")
)


def forward_level() -> int:
    """The level of forward-mode derivatives now; -1 outside of one. Without ``_current_level``: 0,
    so that each tensor is asked for its tangent, which is slower and the same.
    """
    return _level(forward_ad)


# -- what else is under way ------------------------------------------------------------------------

profiler_is_on: Callable[[], bool] = private("torch._C._autograd._profiler_enabled", lambda: False)
"""Whether any profiler of torch runs in this thread. Without it: no, so one that was started before
the audit is not noticed, and ours may end it."""

_tracing: Any = private("torch._guards.TracingContext")


def compiler_traces() -> bool:
    """True while torch.compile traces: AOTAutograd then runs a backward of its own, under anomaly
    mode.

    Without ``torch._guards.TracingContext``: False, so that backward counts as the user's.
    """
    return hasattr(_tracing, "try_get") and _tracing.try_get() is not None


def has_dynamo() -> bool:
    """Whether the compiler was imported. Without ``torch._dynamo``: no."""
    return "torch._dynamo" in sys.modules
