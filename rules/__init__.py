"""The rules, one file each. CATALOGUE is the whole list, in the order of the manual."""

from __future__ import annotations

from auditor.rule import Rule

from .amp001_no_mixed_precision import NoMixedPrecision
from .amp002_tf32_off import Tf32Off
from .amp003_awkward_sizes import AwkwardProductSizes
from .amp004_half_where_bfloat16 import HalfWhereBfloat16IsNative
from .amp005_old_amp_api import OldMixedPrecisionApi
from .amp006_scaler_misused import GradScalerMisused
from .amp007_cast_thrash import CastThrash
from .amp009_loss_in_half import LossInHalf
from .cfg001_autotuning_every_step import AutotuningEveryStep
from .cfg002_bias_before_norm import BiasBeforeBatchNorm
from .cfg003_layout_transposes import LayoutTransposedAroundConvolutions
from .cfg008_float64_creeps import Float64InTheStep
from .ckpt001_foreign_code import CheckpointNeedsCode
from .ckpt002_variant_not_chosen import CheckpointVariantNotChosen
from .ckpt003_damaged import CheckpointDamaged
from .ckpt004_save_blocks_step import SaveBlocksStep
from .ckpt005_cannot_resume import CheckpointCannotResume
from .ckpt006_stale_rate import CheckpointOverridesRate
from .ckpt007_spoiled_moments import OptimizerMomentsSpoiled
from .data003_pageable_batches import LoaderWithoutPinnedMemory
from .data004_blocking_batches import PinnedBatchCopiedBlocking
from .data007_input_bound import StepWaitsForInput
from .data008_copies_to_device import StepBoundByCopiesToDevice
from .data009_device_resident_batch import LoaderYieldsDeviceTensors
from .dist002_backend_not_nccl import BackendOfTheHost
from .dist003_exposed_communication import ExposedCommunication
from .dist004_straggler import RankKeepsOthersWaiting
from .graph001_graph_kept import GraphKeptAcrossSteps
from .graph002_retain_never_needed import RetainedGraphNeverNeeded
from .graph003_graph_in_eval import GraphRecordedInEvaluation
from .graph004_create_graph_cycle import GradientsKeepTheirGraph
from .graph005_never_trained import ParametersNeverTrained
from .graph006_left_out import TrainableTensorLeftOut
from .kern001_idle_device import DeviceIdleInStep
from .kern002_host_gaps import HostLeavesDeviceIdle
from .kern003_launch_bound import LaunchBound
from .kern004_launch_queue_full import LaunchQueueFull
from .kern005_unfused_attention import UnfusedAttention
from .kern006_loop_indexing import LoopOverIndex
from .mem001_near_capacity import DeviceMemoryNearlyFull
from .mem003_memory_grows import MemoryGrowsEveryStep
from .mem004_reserved_unneeded import ReservedMemoryNeverNeeded
from .mem005_pinned_segment import BlockPinsSegment
from .mem006_peak_by_line import PeakHeldByFewLines
from .mem008_variable_sizes import VaryingSizesReallocate
from .mem009_allocator_setting import AllocatorSettingWouldHelp
from .mem011_oom_handling import OutOfMemoryHandledWrongly
from .mem012_host_memory_full import HostMemoryNearlyFull
from .mem014_one_change import PeakMemoryCutByOneChange
from .mem015_out_of_memory import RanOutOfMemory
from .num002_nonfinite_born import NonfiniteValueBorn
from .num004_half_headroom import HalfNearOverflow
from .num005_lost_updates import UpdatesRoundedAway
from .num008_unstable_formula import UnstableFormula
from .num009_anomaly_mode import AnomalyModeLeftOn
from .num012_vanishing_epsilon import EpsilonVanishes
from .num013_poisoned_weights import WeightsPoisoned
from .num014_gradients_explode import GradientsExplode
from .num015_bad_input import BatchNotFinite
from .opt001_single_tensor_optimizer import OptimizerStepsOneByOne
from .opt002_zero_filled_gradients import GradientsFilledWithZeros
from .opt003_fused_not_used import FusedOptimizerNotUsed
from .opt004_clip_reads_norm import ClipReadsGradientNorm
from .opt005_gradients_pile_up import GradientsPileUp
from .sync001_scalar_read import ScalarReadEveryStep
from .sync002_branch_on_tensor import BranchOnTensor
from .sync003_copy_to_host import CopyToHostEveryStep
from .sync004_explicit_synchronize import ExplicitSynchronize
from .sync005_data_dependent_shape import DataDependentShape
from .sync006_blocking_copy import BlockingCopyEveryStep
from .sync007_pageable_async_copy import AsyncCopyFromPageableMemory
from .sync008_synchronous_memset import SynchronousMemset
from .sync009_allocator_call import AllocatorCallEveryStep
from .sync010_made_on_host import TensorMadeOnHostThenMoved
from .sync011_constant_to_device import ConstantSentEveryStep
from .sync012_driver_allocations import DriverAllocationsInSteadyState
from .sync013_copies_to_host import StepBoundByCopiesToHost
from .time002_step_outliers import StepOutliers
from .time003_unattributed_time import UnattributedTime

CATALOGUE: tuple[type[Rule], ...] = (
    ScalarReadEveryStep,
    BranchOnTensor,
    CopyToHostEveryStep,
    ExplicitSynchronize,
    DataDependentShape,
    BlockingCopyEveryStep,
    AsyncCopyFromPageableMemory,
    SynchronousMemset,
    AllocatorCallEveryStep,
    TensorMadeOnHostThenMoved,
    ConstantSentEveryStep,
    DriverAllocationsInSteadyState,
    StepBoundByCopiesToHost,
    LoaderWithoutPinnedMemory,
    PinnedBatchCopiedBlocking,
    StepWaitsForInput,
    StepBoundByCopiesToDevice,
    LoaderYieldsDeviceTensors,
    GraphKeptAcrossSteps,
    RetainedGraphNeverNeeded,
    GraphRecordedInEvaluation,
    GradientsKeepTheirGraph,
    ParametersNeverTrained,
    TrainableTensorLeftOut,
    DeviceMemoryNearlyFull,
    MemoryGrowsEveryStep,
    ReservedMemoryNeverNeeded,
    BlockPinsSegment,
    PeakHeldByFewLines,
    VaryingSizesReallocate,
    AllocatorSettingWouldHelp,
    OutOfMemoryHandledWrongly,
    HostMemoryNearlyFull,
    PeakMemoryCutByOneChange,
    RanOutOfMemory,
    NonfiniteValueBorn,
    HalfNearOverflow,
    UpdatesRoundedAway,
    UnstableFormula,
    AnomalyModeLeftOn,
    EpsilonVanishes,
    WeightsPoisoned,
    GradientsExplode,
    BatchNotFinite,
    NoMixedPrecision,
    Tf32Off,
    AwkwardProductSizes,
    HalfWhereBfloat16IsNative,
    OldMixedPrecisionApi,
    GradScalerMisused,
    CastThrash,
    LossInHalf,
    AutotuningEveryStep,
    BiasBeforeBatchNorm,
    LayoutTransposedAroundConvolutions,
    Float64InTheStep,
    OptimizerStepsOneByOne,
    GradientsFilledWithZeros,
    FusedOptimizerNotUsed,
    ClipReadsGradientNorm,
    GradientsPileUp,
    CheckpointNeedsCode,
    CheckpointVariantNotChosen,
    CheckpointDamaged,
    SaveBlocksStep,
    CheckpointCannotResume,
    CheckpointOverridesRate,
    OptimizerMomentsSpoiled,
    DeviceIdleInStep,
    HostLeavesDeviceIdle,
    LaunchBound,
    LaunchQueueFull,
    UnfusedAttention,
    LoopOverIndex,
    BackendOfTheHost,
    ExposedCommunication,
    RankKeepsOthersWaiting,
    StepOutliers,
    UnattributedTime,
)
