"""Evidence: typed tables that rules ask for by naming them as parameters. No torch here.

The imports stay written out, since this is what rule packs import: type checkers and editors must
see each name. It is no registry. A rule may ask for any :class:`Table`, also one from a module of
its own; here stand those that are promised.
"""

from __future__ import annotations

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.activation_checkpointing import ActivationCheckpointing
from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.array_lists import ArrayLists
from auditor.evidence.recorded.autotuning import Autotuning
from auditor.evidence.recorded.backward import Backward
from auditor.evidence.recorded.backward_rewalks import BackwardRewalks
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.buffer_broadcasts import BufferBroadcasts
from auditor.evidence.recorded.collective_order import CollectiveOrder
from auditor.evidence.recorded.collectives import Collectives, OwnTraffic
from auditor.evidence.recorded.compiled_regions import CompiledRegions
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.copies import Copies
from auditor.evidence.recorded.data_parallel import DataParallel, RankBatches, SamplerEpochs
from auditor.evidence.recorded.debug_modes import DebugModes
from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.eval_mode_steps import EvalModeSteps
from auditor.evidence.recorded.float64_ops import Float64Ops
from auditor.evidence.recorded.forwards_in_row import ForwardsInRow
from auditor.evidence.recorded.grad_norms import GradientNorms
from auditor.evidence.recorded.half_updates import Updates
from auditor.evidence.recorded.indexing_loops import IndexingLoops
from auditor.evidence.recorded.kept_states import KeptStates
from auditor.evidence.recorded.kept_tensors import KeptTensors
from auditor.evidence.recorded.late_hooks import LateHooks
from auditor.evidence.recorded.leaves_outside_optimizer import LeavesOutsideOptimizer
from auditor.evidence.recorded.load_state_dict import Loads
from auditor.evidence.recorded.loader_lengths import LoaderLengths
from auditor.evidence.recorded.loading import Loading
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.memory import DeviceMemory, HostMemory
from auditor.evidence.recorded.micro_batches import MicroBatches
from auditor.evidence.recorded.module_loops import ModuleLoops
from auditor.evidence.recorded.nonfinite import Nonfinite
from auditor.evidence.recorded.norm_batches import NormBatches
from auditor.evidence.recorded.norm_buffers import NormBuffers
from auditor.evidence.recorded.oom_handlers import OomHandlers
from auditor.evidence.recorded.op_ranges import OpRanges
from auditor.evidence.recorded.pairwise_differences import PairwiseDifferences
from auditor.evidence.recorded.params_without_grad import ParamsWithoutGrad
from auditor.evidence.recorded.partial_resumes import PartialResumes
from auditor.evidence.recorded.peak_experiments import PeakExperiments
from auditor.evidence.recorded.rank_saves import RankSaves
from auditor.evidence.recorded.reads import Reads
from auditor.evidence.recorded.repeated_draws import RepeatedDraws
from auditor.evidence.recorded.reread_files import RereadFiles
from auditor.evidence.recorded.retained_graphs import RetainedGraphs
from auditor.evidence.recorded.stale_grads import StaleGrads
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.storage_syncs import StorageSyncs
from auditor.evidence.recorded.summed_losses import LossSums
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.evidence.recorded.torch_save import Saves
from auditor.evidence.recorded.train_mode_forwards import TrainModeForwards
from auditor.evidence.recorded.unused_graphs import CreateGraphCycles, UnusedGraphs
from auditor.evidence.recorded.zero_grad import ZeroGrads
from auditor.evidence.snapshot.cache_churn import CacheChurn
from auditor.evidence.snapshot.growing_lines import GrowingLines
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.late_growth import LateGrowth
from auditor.evidence.snapshot.never_freed import NeverFreed
from auditor.evidence.snapshot.out_of_memory import OutOfMemory
from auditor.evidence.snapshot.peak import PeakHolders
from auditor.evidence.snapshot.segments import Snapshot
from auditor.evidence.snapshot.varying_sizes import VaryingSizes
from auditor.evidence.snapshot.what_if import WhatIf
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Others, Table

__all__ = [
    "ActivationCheckpointing",
    "Allocations",
    "Amp",
    "ArrayLists",
    "Autotuning",
    "Backward",
    "BackwardRewalks",
    "Batches",
    "BufferBroadcasts",
    "CacheChurn",
    "Checkpoint",
    "Checkpoints",
    "CollectiveOrder",
    "Collectives",
    "CompiledRegions",
    "Compiles",
    "Configs",
    "Copies",
    "CreateGraphCycles",
    "DataParallel",
    "DebugModes",
    "DeviceCalls",
    "DeviceMemory",
    "EvalModeSteps",
    "Evidence",
    "Float64Ops",
    "ForwardsInRow",
    "GradientNorms",
    "GrowingLines",
    "HostMemory",
    "IndexingLoops",
    "KeptStates",
    "KeptTensors",
    "LateGrowth",
    "LateHooks",
    "LeavesOutsideOptimizer",
    "LoaderLengths",
    "Loading",
    "Loads",
    "LossSums",
    "Machine",
    "MicroBatches",
    "ModuleLoops",
    "NeverFreed",
    "Nonfinite",
    "NormBatches",
    "NormBuffers",
    "OomHandlers",
    "OpRanges",
    "Others",
    "OutOfMemory",
    "OwnTraffic",
    "PairwiseDifferences",
    "ParamsWithoutGrad",
    "PartialResumes",
    "PeakExperiments",
    "PeakHolders",
    "RankBatches",
    "RankSaves",
    "Reads",
    "RepeatedDraws",
    "RereadFiles",
    "RetainedGraphs",
    "SamplerEpochs",
    "Saves",
    "Snapshot",
    "Source",
    "StaleGrads",
    "Steps",
    "StorageSyncs",
    "Table",
    "ThrownWork",
    "TrainModeForwards",
    "UnusedGraphs",
    "Updates",
    "VaryingSizes",
    "WhatIf",
    "ZeroGrads",
]

FORMER = {
    "Cycles": "CreateGraphCycles",
    "Doubles": "Float64Ops",
    "Evaluations": "UnusedGraphs",
    "Fed": "ParamsWithoutGrad",
    "Held": "RetainedGraphs",
    "KeptLines": "NeverFreed",
    "Leaner": "PeakExperiments",
    "Modes": "DebugModes",
    "Numerics": "OpRanges",
    "Piecewise": "IndexingLoops",
    "Recompute": "ActivationCheckpointing",
    "Strays": "LeavesOutsideOptimizer",
    "Uncleared": "StaleGrads",
}
"""Names of tables until 0.1, for rule packs that import them."""


def __getattr__(name: str) -> type[Table]:
    """A table by its former name."""
    if name in FORMER:
        table: type[Table] = globals()[FORMER[name]]
        return table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
