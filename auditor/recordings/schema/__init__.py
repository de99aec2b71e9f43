"""What a recording holds: the manifest's fields, and one struct for each part's rows
(docs/recording.md is written from them).
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator

from auditor.recordings.row import Item, PassRow, Row
from auditor.recordings.schema.compare import (
    LossRow,
    MovedParameterRow,
    MovedStepsRow,
    ParameterRow,
)
from auditor.recordings.schema.compiled import CompileRow, RegionRow, RegionRunRow
from auditor.recordings.schema.course import CourseRow, DeviceWorkRow
from auditor.recordings.schema.data import (
    BatchRow,
    DrawsRow,
    FetchedRow,
    ListedRow,
    LoaderRow,
    LoadingRow,
    LoadRow,
    ModuleLoadRow,
    OptimizerLoadRow,
    RateGroup,
    RereadRow,
    SaveRow,
    SyncedRow,
)
from auditor.recordings.schema.dist import (
    BatchDigestRow,
    CommunicationRow,
    DataParallelRow,
    GradientSyncRow,
    RankMemoryRow,
    SamplerEpochRow,
)
from auditor.recordings.schema.drill import (
    DrillBackwardRow,
    DrillBatchRow,
    DrillBrokenRow,
    DrillEndRow,
    DrillForwardRow,
    DrillInjectedRow,
    DrillLoadRow,
    DrillOptimizerRow,
    DrillRow,
    DrillSaveRow,
    DrillSkippedRow,
    DrillStartRow,
    DrillStateRow,
)
from auditor.recordings.schema.graph import (
    BackwardRow,
    FedRow,
    GraphRow,
    Parameter,
    ReusedRow,
    StillGroup,
)
from auditor.recordings.schema.manifest import Manifest
from auditor.recordings.schema.memory import KeptRow, OwnerRow
from auditor.recordings.schema.numerics import (
    AmpRow,
    BadTensor,
    BirthInput,
    BirthRow,
    LoopTimeRow,
    ModeRow,
    NonfiniteRow,
    NormBufferRow,
    NumericRow,
    ProfilerRow,
)
from auditor.recordings.schema.optim import ZeroGradRow
from auditor.recordings.schema.planned import (
    PlannedBlocksRow,
    PlannedChangeRow,
    PlannedInputRow,
    PlannedOptimizerRow,
)
from auditor.recordings.schema.reproduce import (
    ReproduceOperatorRow,
    ReproduceOutcomeRow,
    ReproduceRow,
    ReproduceSourceRow,
    ReproduceValuesRow,
)
from auditor.recordings.schema.run import (
    Counters,
    DeviceTimeRow,
    LapseRow,
    SiteRow,
    StepRow,
    TrainingRow,
)
from auditor.recordings.schema.sync import (
    CallRow,
    CopyRow,
    DeviceUseRow,
    LimitRow,
    OperandItem,
    OperatorOrderRow,
    OperatorRow,
    ReadRow,
)
from auditor.recordings.schema.waste import ThrownRow

FAMILIES = "auditor.rules"
"""Rows that one family of rules alone reads stand in its module ``rows``."""


def _of_families() -> Iterator[type[Row]]:
    package = importlib.import_module(FAMILIES)
    for family in pkgutil.iter_modules(package.__path__, FAMILIES + "."):
        name = f"{family.name}.rows"
        if family.ispkg and importlib.util.find_spec(name) is not None:
            rows = vars(importlib.import_module(name)).values()
            yield from (
                row
                for row in rows
                if isinstance(row, type) and issubclass(row, Row) and row.__module__ == name
            )


ROWS: tuple[type[Row], ...] = (
    SiteRow,
    StepRow,
    DeviceTimeRow,
    ReadRow,
    OwnerRow,
    CopyRow,
    DeviceUseRow,
    OperatorOrderRow,
    OperatorRow,
    LimitRow,
    CourseRow,
    DeviceWorkRow,
    CallRow,
    SaveRow,
    SyncedRow,
    LoaderRow,
    BatchRow,
    LoadingRow,
    FetchedRow,
    DrawsRow,
    ListedRow,
    RereadRow,
    BackwardRow,
    ReusedRow,
    GraphRow,
    KeptRow,
    ModeRow,
    ZeroGradRow,
    AmpRow,
    FedRow,
    ModuleLoadRow,
    OptimizerLoadRow,
    NumericRow,
    LoopTimeRow,
    ThrownRow,
    CompileRow,
    RegionRow,
    RegionRunRow,
    DataParallelRow,
    GradientSyncRow,
    SamplerEpochRow,
    BatchDigestRow,
    CommunicationRow,
    RankMemoryRow,
    ProfilerRow,
    NonfiniteRow,
    NormBufferRow,
    LossRow,
    ParameterRow,
    TrainingRow,
    LapseRow,
    MovedStepsRow,
    MovedParameterRow,
    BirthRow,
    DrillStartRow,
    DrillOptimizerRow,
    DrillSkippedRow,
    DrillForwardRow,
    DrillBackwardRow,
    DrillBatchRow,
    DrillInjectedRow,
    DrillSaveRow,
    DrillLoadRow,
    DrillEndRow,
    DrillBrokenRow,
    PlannedInputRow,
    PlannedBlocksRow,
    PlannedOptimizerRow,
    PlannedChangeRow,
    ReproduceOperatorRow,
    ReproduceOutcomeRow,
    ReproduceSourceRow,
    ReproduceValuesRow,
    *_of_families(),
)
"""In the order of docs/recording.md. A part with several has rows that its tag tells apart
(``what`` or ``call``).
"""

PARTS: dict[str, tuple[type[Row], ...]] = {
    part: tuple(row for row in ROWS if row.part == part)
    for part in dict.fromkeys(row.part for row in ROWS)
}
"""Types of the rows of each part."""

__all__ = [
    "PARTS",
    "ROWS",
    "AmpRow",
    "BackwardRow",
    "BadTensor",
    "BatchDigestRow",
    "BatchRow",
    "BirthInput",
    "BirthRow",
    "CallRow",
    "CommunicationRow",
    "CompileRow",
    "CopyRow",
    "Counters",
    "CourseRow",
    "DataParallelRow",
    "DeviceTimeRow",
    "DeviceUseRow",
    "DeviceWorkRow",
    "DrawsRow",
    "DrillBackwardRow",
    "DrillBatchRow",
    "DrillBrokenRow",
    "DrillEndRow",
    "DrillForwardRow",
    "DrillInjectedRow",
    "DrillLoadRow",
    "DrillOptimizerRow",
    "DrillRow",
    "DrillSaveRow",
    "DrillSkippedRow",
    "DrillStartRow",
    "DrillStateRow",
    "FedRow",
    "FetchedRow",
    "GradientSyncRow",
    "GraphRow",
    "Item",
    "KeptRow",
    "LapseRow",
    "LimitRow",
    "ListedRow",
    "LoadRow",
    "LoaderRow",
    "LoadingRow",
    "LoopTimeRow",
    "LossRow",
    "Manifest",
    "ModeRow",
    "ModuleLoadRow",
    "MovedParameterRow",
    "MovedStepsRow",
    "NonfiniteRow",
    "NormBufferRow",
    "NumericRow",
    "OperandItem",
    "OperatorOrderRow",
    "OperatorRow",
    "OptimizerLoadRow",
    "OwnerRow",
    "Parameter",
    "ParameterRow",
    "PassRow",
    "PlannedBlocksRow",
    "PlannedChangeRow",
    "PlannedInputRow",
    "PlannedOptimizerRow",
    "ProfilerRow",
    "RankMemoryRow",
    "RateGroup",
    "ReadRow",
    "RegionRow",
    "RegionRunRow",
    "ReproduceOperatorRow",
    "ReproduceOutcomeRow",
    "ReproduceRow",
    "ReproduceSourceRow",
    "ReproduceValuesRow",
    "RereadRow",
    "ReusedRow",
    "Row",
    "SamplerEpochRow",
    "SaveRow",
    "SiteRow",
    "StepRow",
    "StillGroup",
    "SyncedRow",
    "ThrownRow",
    "TrainingRow",
    "ZeroGradRow",
]
