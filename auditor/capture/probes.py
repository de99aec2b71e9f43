"""The list of probes, in the order in which they are started."""

from __future__ import annotations

from auditor.capture.amp import AmpProbe
from auditor.capture.backward import BackwardProbe
from auditor.capture.birth import BirthProbe
from auditor.capture.calls import CallsProbe
from auditor.capture.cycles import CyclesProbe
from auditor.capture.doubles import DoublesProbe
from auditor.capture.drill import DrillProbe
from auditor.capture.enclosing import EnclosingProbe
from auditor.capture.evals import EvalsProbe
from auditor.capture.fed import FedProbe
from auditor.capture.filled import FilledProbe
from auditor.capture.finite import FiniteProbe
from auditor.capture.holders import HoldersProbe
from auditor.capture.leaner import LeanerProbe
from auditor.capture.loader import LoaderProbe
from auditor.capture.loads import LoadsProbe
from auditor.capture.modes import ModesProbe
from auditor.capture.moves import MovesProbe
from auditor.capture.norms import NormsProbe
from auditor.capture.numerics import NumericsProbe
from auditor.capture.origin import OriginProbe
from auditor.capture.owners import OwnersProbe
from auditor.capture.piecewise import PiecewiseProbe
from auditor.capture.probe import Context, Probe
from auditor.capture.reads import ReadsProbe
from auditor.capture.recompute import RecomputeProbe
from auditor.capture.results import ResultsProbe
from auditor.capture.saves import SavesProbe
from auditor.capture.stepping import SteppingProbe
from auditor.capture.strays import StraysProbe
from auditor.capture.training import TrainingProbe
from auditor.capture.uncleared import UnclearedProbe
from auditor.capture.updates import UpdatesProbe
from auditor.capture.zero_grad import ZeroGradProbe

PROBES: tuple[type[Probe], ...] = (
    ModesProbe,
    TrainingProbe,
    CallsProbe,
    LoaderProbe,
    LoadsProbe,
    SavesProbe,
    RecomputeProbe,
    ZeroGradProbe,
    FilledProbe,
    AmpProbe,
    FedProbe,
    StraysProbe,
    EvalsProbe,
    CyclesProbe,
    EnclosingProbe,
    NormsProbe,
    UpdatesProbe,
    UnclearedProbe,
    BackwardProbe,
    HoldersProbe,
    ReadsProbe,
    NumericsProbe,  # computes ranges: the watches that are entered after it do not see that
    DoublesProbe,
    PiecewiseProbe,
    OriginProbe,
    BirthProbe,  # leaves its watch before the next one looks
    FiniteProbe,
    DrillProbe,
    ResultsProbe,
    MovesProbe,
)

ALWAYS = (ModesProbe, TrainingProbe)
"""Needed whatever the rules are: a profiler of the user's inside ours must be noticed, and a target that trains nothing."""


ON_SHADOW = (
    ModesProbe,
    TrainingProbe,
    CallsProbe,
    LoaderProbe,
    ZeroGradProbe,
    SteppingProbe,
    AmpProbe,
    EnclosingProbe,
    BackwardProbe,
    HoldersProbe,
    NumericsProbe,  # computes ranges: the watches that are entered after it do not see that
    DoublesProbe,
    PiecewiseProbe,
    LeanerProbe,
    UpdatesProbe,
    UnclearedProbe,
    ResultsProbe,
)
"""What a rehearsal runs beside the shadow device itself."""


def select(parts: tuple[str, ...], context: Context) -> list[Probe]:
    """The probes that write any of ``parts``, made for one recording."""
    wanted = set(parts)
    if context.device == "rehearse":
        from auditor.capture.rehearsal import RehearsalProbe

        beside = [probe(context) for probe in ON_SHADOW if probe in ALWAYS or wanted.intersection(probe.parts)]
        return [RehearsalProbe(context), *beside, OwnersProbe(context)]
    chosen = [probe(context) for probe in PROBES if probe in ALWAYS or wanted.intersection(probe.parts)]
    return [*chosen, OwnersProbe(context)] if context.device == "cuda" else chosen
