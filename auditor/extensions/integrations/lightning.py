"""``AuditCallback`` for Lightning: ``Trainer(callbacks=[AuditCallback(start=100, steps=50)])``."""

from __future__ import annotations

import sys
from typing import Any

from auditor.extensions.integrations.step_audit import StepAudit

if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class AuditCallback(Callback):  # type: ignore[misc]
    """Audits ``steps`` (50) optimizer steps of rank 0 of a job that has taken ``start``, and writes
    the report while the job goes on; with ``every`` it watches the job from there on. Takes what
    :class:`StepAudit` takes.
    """

    def __init__(self, start: int = 100, steps: int | None = None, **options: Any) -> None:
        super().__init__()
        self.audit = StepAudit(start, steps, **options)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """An optimizer may have stepped."""
        if trainer.is_global_zero:
            self.audit.step_ended(trainer.global_step)

    def on_train_end(self, *_: Any) -> None:
        """A job that ends early has a report of what was seen."""
        self.audit.close()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """So has one that fails."""
        self.audit.close(exception)
