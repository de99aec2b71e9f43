"""The rules, one file each. CATALOGUE is the whole list, in the order of the manual."""

from __future__ import annotations

from auditor.rule import Rule

from .data003_pageable_batches import LoaderWithoutPinnedMemory
from .data004_blocking_batches import PinnedBatchCopiedBlocking
from .data007_input_bound import StepWaitsForInput
from .data009_device_resident_batch import LoaderYieldsDeviceTensors
from .graph001_graph_kept import GraphKeptAcrossSteps
from .graph002_retain_never_needed import RetainedGraphNeverNeeded
from .mem003_memory_grows import MemoryGrowsEveryStep
from .mem004_reserved_unneeded import ReservedMemoryNeverNeeded
from .mem005_pinned_segment import BlockPinsSegment
from .mem006_peak_by_line import PeakHeldByFewLines
from .mem008_variable_sizes import VaryingSizesReallocate
from .mem009_allocator_setting import AllocatorSettingWouldHelp
from .mem015_out_of_memory import RanOutOfMemory
from .num002_nonfinite_born import NonfiniteValueBorn
from .num009_anomaly_mode import AnomalyModeLeftOn
from .opt002_zero_filled_gradients import GradientsFilledWithZeros
from .opt004_clip_reads_norm import ClipReadsGradientNorm
from .sync001_scalar_read import ScalarReadEveryStep
from .sync002_branch_on_tensor import BranchOnTensor
from .sync003_copy_to_host import CopyToHostEveryStep
from .sync004_explicit_synchronize import ExplicitSynchronize
from .sync005_data_dependent_shape import DataDependentShape
from .sync006_blocking_copy import BlockingCopyEveryStep
from .sync007_pageable_async_copy import AsyncCopyFromPageableMemory
from .sync009_allocator_call import AllocatorCallEveryStep
from .sync010_made_on_host import TensorMadeOnHostThenMoved
from .sync011_constant_to_device import ConstantSentEveryStep

CATALOGUE: tuple[type[Rule], ...] = (
    ScalarReadEveryStep,
    BranchOnTensor,
    CopyToHostEveryStep,
    ExplicitSynchronize,
    DataDependentShape,
    BlockingCopyEveryStep,
    AsyncCopyFromPageableMemory,
    AllocatorCallEveryStep,
    TensorMadeOnHostThenMoved,
    ConstantSentEveryStep,
    LoaderWithoutPinnedMemory,
    PinnedBatchCopiedBlocking,
    StepWaitsForInput,
    LoaderYieldsDeviceTensors,
    GraphKeptAcrossSteps,
    RetainedGraphNeverNeeded,
    MemoryGrowsEveryStep,
    ReservedMemoryNeverNeeded,
    BlockPinsSegment,
    PeakHeldByFewLines,
    VaryingSizesReallocate,
    AllocatorSettingWouldHelp,
    RanOutOfMemory,
    NonfiniteValueBorn,
    AnomalyModeLeftOn,
    GradientsFilledWithZeros,
    ClipReadsGradientNorm,
)
