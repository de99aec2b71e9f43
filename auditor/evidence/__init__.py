"""Evidence: typed tables that rules ask for by naming them as parameters. No torch here."""

from __future__ import annotations

from auditor.evidence.amp import Amp
from auditor.evidence.backward import Backward
from auditor.evidence.batches import Batches
from auditor.evidence.calls import DeviceCalls
from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.configs import Configs
from auditor.evidence.copies import Copies
from auditor.evidence.doubles import Doubles
from auditor.evidence.fed import Fed
from auditor.evidence.held import Held
from auditor.evidence.leaner import Leaner
from auditor.evidence.loads import Loads
from auditor.evidence.machine import Machine
from auditor.evidence.memory import DeviceMemory, HostMemory
from auditor.evidence.modes import Modes
from auditor.evidence.norms import GradientNorms
from auditor.evidence.numbers import Nonfinite
from auditor.evidence.numerics import Numerics
from auditor.evidence.oom_handlers import OomHandlers
from auditor.evidence.piecewise import Piecewise
from auditor.evidence.reads import Reads
from auditor.evidence.recompute import Recompute
from auditor.evidence.saves import Saves
from auditor.evidence.snapshot import Snapshot
from auditor.evidence.snapshot_churn import CacheChurn
from auditor.evidence.snapshot_course import Allocations
from auditor.evidence.snapshot_growth import LateGrowth
from auditor.evidence.snapshot_kept import KeptLines
from auditor.evidence.snapshot_oom import OutOfMemory
from auditor.evidence.snapshot_peak import PeakHolders
from auditor.evidence.snapshot_whatif import WhatIf
from auditor.evidence.source import Source
from auditor.evidence.steps import Steps
from auditor.evidence.strays import Strays
from auditor.evidence.table import Others, Table
from auditor.evidence.uncleared import Uncleared
from auditor.evidence.unwalked import Cycles, Evaluations
from auditor.evidence.updates import Updates
from auditor.evidence.zero_grads import ZeroGrads

__all__ = [
    "Allocations",
    "Amp",
    "Backward",
    "Batches",
    "CacheChurn",
    "Checkpoint",
    "Checkpoints",
    "Configs",
    "Copies",
    "Cycles",
    "DeviceCalls",
    "DeviceMemory",
    "Doubles",
    "Evaluations",
    "Fed",
    "GradientNorms",
    "Held",
    "HostMemory",
    "KeptLines",
    "LateGrowth",
    "Leaner",
    "Loads",
    "Machine",
    "Modes",
    "Nonfinite",
    "Numerics",
    "OomHandlers",
    "Others",
    "OutOfMemory",
    "PeakHolders",
    "Piecewise",
    "Reads",
    "Recompute",
    "Saves",
    "Snapshot",
    "Source",
    "Steps",
    "Strays",
    "Table",
    "Uncleared",
    "Updates",
    "WhatIf",
    "ZeroGrads",
]
