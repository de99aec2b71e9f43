"""CKPT011: a checkpoint lacks the average of the weights."""

from __future__ import annotations

import re
from collections.abc import Iterator

from auditor.evidence.source.files import Source, unparsed
from auditor.evidence.table import Rows
from auditor.model import Finding
from auditor.recordings.schema.graph import CensusRow

from ..census import CensusSays

ELSEWHERE = (
    "save_file", "save_pretrained", "save_state", "savez", "register_for_checkpointing"
)  # fmt: skip
"""Calls that may save it in another way."""

AVERAGE = re.compile(r"ema|avg|averag|swa|shadow|teacher|target", re.IGNORECASE)


class AverageIsUnsaved(CensusSays):
    """A training checkpoint lacks the moving average of the weights."""

    code = "CKPT011"
    kind = "unsaved"
    rehearsed = False
    advice = "Save the average beside the model, and load it where training resumes."

    def said(self, row: CensusRow) -> str:
        return (
            f"this checkpoint holds the weights and the state of their optimizer, but not {row.name}, "
            f"a moving average of the weights that changed on {row.steps} watched steps: after a "
            "resume it starts over"
        )

    def detect(  # type: ignore[override]  # the engine reads what it needs off the signature
        self, census: Rows[CensusRow], source: Source
    ) -> Iterator[Finding]:
        """Not where a line that did not run may save it."""
        saved = any(AVERAGE.search(unparsed(call)) for _, call in source.calls_of("save"))
        if not saved and not any(source.calls_of(*ELSEWHERE)):
            yield from super().detect(census)
