"""Where the number of findings goes: a user's function, or a tracker the program has imported."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from auditor.errors import AuditProblem

Sink = Callable[[Mapping[str, float], int], None]

KNOWN = ("wandb", "mlflow")


def sink(log_to: Any) -> Sink:
    """What takes names, values and the step. ``log_to``: a function ``(name, value, step)``, an
    object with ``add_scalar`` (TensorBoard's ``SummaryWriter``), ``"wandb"``, ``"mlflow"`` or None.

    Raises :class:`AuditProblem` for anything else.
    """
    if log_to is None:
        return lambda values, step: None
    if log_to == "wandb":
        return _wandb
    if log_to == "mlflow":
        return _mlflow
    one = getattr(log_to, "add_scalar", log_to)
    if not callable(one):
        raise AuditProblem(
            f"log_to takes a function (name, value, step), a SummaryWriter, {' or '.join(KNOWN)}"
        )

    def each(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            one(name, value, step)

    return each


def _wandb(values: Mapping[str, float], step: int) -> None:
    """With the program's own next line (``commit=False``): W&B takes no lower step."""
    wandb = sys.modules.get("wandb")
    if getattr(wandb, "run", None) is not None:
        wandb.log({**values, "watch/step": step}, commit=False)  # type: ignore[union-attr]


def _mlflow(values: Mapping[str, float], step: int) -> None:
    """Into the run that is active; without one MLflow would begin a run of its own."""
    mlflow: Any = sys.modules.get("mlflow")
    if mlflow is not None and mlflow.active_run() is not None:
        mlflow.log_metrics(dict(values), step=step, synchronous=False)
