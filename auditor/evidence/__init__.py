"""Evidence: typed tables that rules ask for by naming them as parameters. No torch here.

These names are for rule packs, and imported when they are asked for. They are no registry: a rule
may ask for any :class:`Table`, one of its own or of a family (``auditor.rules.num.num009_anomaly_mode``),
and for the rows of a type (:class:`Rows`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.evidence.checkpoints import Checkpoint, Checkpoints
    from auditor.evidence.recorded.amp import Amp
    from auditor.evidence.recorded.batches import Batches
    from auditor.evidence.recorded.compiled_regions import CompiledRegions
    from auditor.evidence.recorded.compiles import Compiles
    from auditor.evidence.recorded.copies import Copies
    from auditor.evidence.recorded.data_parallel import DataParallel, RankBatches, SamplerEpochs
    from auditor.evidence.recorded.device_calls import DeviceCalls
    from auditor.evidence.recorded.load_state_dict import Loads
    from auditor.evidence.recorded.loading import Loading
    from auditor.evidence.recorded.machine import Machine
    from auditor.evidence.recorded.op_ranges import OpRanges
    from auditor.evidence.recorded.reads import Reads
    from auditor.evidence.recorded.retained_graphs import RetainedGraphs
    from auditor.evidence.recorded.steps import Steps
    from auditor.evidence.recorded.thrown_work import ThrownWork
    from auditor.evidence.recorded.torch_save import Saves
    from auditor.evidence.snapshot.history import Allocations
    from auditor.evidence.snapshot.never_freed import NeverFreed
    from auditor.evidence.snapshot.out_of_memory import OutOfMemory
    from auditor.evidence.snapshot.segments import Snapshot
    from auditor.evidence.snapshot.what_if import WhatIf
    from auditor.evidence.source.config_values import Configs
    from auditor.evidence.source.files import Source
    from auditor.evidence.table import Evidence, Others, Rows, Table

WHERE = {
    "Allocations": "snapshot.history",
    "Amp": "recorded.amp",
    "Batches": "recorded.batches",
    "Checkpoint": "checkpoints",
    "Checkpoints": "checkpoints",
    "CompiledRegions": "recorded.compiled_regions",
    "Compiles": "recorded.compiles",
    "Configs": "source.config_values",
    "Copies": "recorded.copies",
    "DataParallel": "recorded.data_parallel",
    "DeviceCalls": "recorded.device_calls",
    "Evidence": "table",
    "Loading": "recorded.loading",
    "Loads": "recorded.load_state_dict",
    "Machine": "recorded.machine",
    "NeverFreed": "snapshot.never_freed",
    "OpRanges": "recorded.op_ranges",
    "Others": "table",
    "OutOfMemory": "snapshot.out_of_memory",
    "RankBatches": "recorded.data_parallel",
    "Reads": "recorded.reads",
    "Rows": "table",
    "RetainedGraphs": "recorded.retained_graphs",
    "SamplerEpochs": "recorded.data_parallel",
    "Saves": "recorded.torch_save",
    "Snapshot": "snapshot.segments",
    "Source": "source.files",
    "Steps": "recorded.steps",
    "Table": "table",
    "ThrownWork": "recorded.thrown_work",
    "WhatIf": "snapshot.what_if",
}
"""Modules of this package by the names that they define."""

__all__ = [
    "Allocations",
    "Amp",
    "Batches",
    "Checkpoint",
    "Checkpoints",
    "CompiledRegions",
    "Compiles",
    "Configs",
    "Copies",
    "DataParallel",
    "DeviceCalls",
    "Evidence",
    "Loading",
    "Loads",
    "Machine",
    "NeverFreed",
    "OpRanges",
    "Others",
    "OutOfMemory",
    "RankBatches",
    "Reads",
    "RetainedGraphs",
    "Rows",
    "SamplerEpochs",
    "Saves",
    "Snapshot",
    "Source",
    "Steps",
    "Table",
    "ThrownWork",
    "WhatIf",
]


def __getattr__(name: str) -> Any:
    if name not in WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{WHERE[name]}"), name)
