"""``AuditCallback`` for Transformers: ``Trainer(callbacks=[AuditCallback(start=9, steps=50)])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from auditor.extensions.integrations.step_audit import StepAudit


class AuditCallback(TrainerCallback):  # type: ignore[misc]
    """Audits ``steps`` (50) optimizer steps of rank 0 of a job that has taken ``start``, and writes
    the report while the job goes on; with ``every`` it watches the job from there on. Takes what
    :class:`StepAudit` takes.
    """

    def __init__(self, start: int = 100, steps: int | None = None, **options: Any) -> None:
        super().__init__()
        self.audit = StepAudit(start, steps, **options)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """A job before this one may have failed, which Trainer tells no callback."""
        self.audit.close()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The optimizer has stepped."""
        if state.is_world_process_zero:
            self.audit.step_ended(state.global_step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """A job that ends early has a report of what was seen."""
        self.audit.close()
