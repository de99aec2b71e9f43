"""The base of probes that watch single operators as they run."""

from __future__ import annotations

from typing import ClassVar

from auditor.capture.instruments.dispatch_modes import run_compiled_code_eagerly
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.operator_stream import Subscriber, site_of_operator, subscribe
from auditor.errors import fault


class OperatorProbe(Probe):
    """A probe that watches single operators in the calling thread: the one that runs the step."""

    unseen: ClassVar[str]
    """How the sentence begins that says that a watch failed on some operators."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._errors = 0

    def start(self) -> None:
        """Begin to watch; what was begun is taken back where that fails."""
        self.stop()
        try:
            run_compiled_code_eagerly(self._patches)
            self.watch()
        except BaseException:
            self._patches.undo()
            raise

    def watch(self) -> None:
        """Make the watch of this pass and :meth:`enter` it."""

    def enter(self, watch: Subscriber) -> None:
        """Subscribe a watch to the stream of operators; it leaves when the patches are undone."""
        self._patches.on_undo(subscribe(self.context, watch))
        self.watches_operators = True
        self._patches.on_undo(lambda: setattr(self, "watches_operators", False))

    def here(self) -> int | None:
        """The user's line that runs now."""
        return site_of_operator(self.context)

    def fail(self, error: Exception) -> None:
        """Say once that the watch failed on an operator."""
        self._errors += 1
        if self._errors == 1:
            self.context.lapse(self.name, self.parts, error)
            self.context.warn(f"{self.unseen} ({fault(error)})")
