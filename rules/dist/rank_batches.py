"""DIST005, 7, 8, 12 and 13: batches that ranks get, and what they average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.data_parallel import (
    MEMBERS,
    ONE_PROCESS,
    DataParallel,
    DataParallelModule,
    RankBatches,
    SamplerEpochs,
)
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import exhausts, joins, loop_of_epochs, trains
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.data import LoaderRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import places_of
from .rows import CollectiveRow


@dataclass(frozen=True)
class AveragedTooOften(Rule):
    """Gradients are averaged over the ranks more than once per optimizer step"""

    code = "DIST005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Run forward and backward of every micro-batch but the last in `with "
        "model.no_sync():`; both must be inside. If these are several losses of one batch, "
        "add them and call backward once."
    )

    least: int = knob(3, "Report only if it happened in at least this many optimizer steps.")
    share: float = knob(0.5, "Report only if at least this share of the optimizer's steps does it.")

    def detect(self, modules: DataParallel) -> Iterator[Finding]:
        for module in modules.each:
            often = [n for n in module.averaged if n > 1]
            if module.ranks < 2 or len(often) < self.least:
                continue
            if len(often) < self.share * len(module.averaged):
                continue
            usual = int(median(often))
            yield Finding(
                module.at,
                f"gradients of `{module.what}` are averaged over {module.ranks} ranks after each "
                f"of {usual} backward passes; the last of them is enough, and each rank needlessly sends "
                f"{amounts.size((usual - 1) * module.nbytes)} per step",
                steps=len(often),
                per_step=float(usual - 1),
            )


@dataclass(frozen=True)
class SteppedUnaveraged(Rule):
    """The optimizer steps on gradients that were not averaged over the ranks"""

    code = "DIST013"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Run the last micro-batch before optimizer.step() outside of no_sync(), forward and "
        "backward, even if an epoch ends with fewer micro-batches; run all others inside."
    )

    alone: int = knob(5, "Report if at least this many steps averaged no gradient at all.")
    sent: float = knob(0.25, "No report if the program sends at least this share of gradients.")

    def detect(self, modules: DataParallel, collectives: Rows[CollectiveRow]) -> Iterator[Finding]:
        sent: Counter[int] = Counter()
        for row in collectives:
            sent[row.step] += row.bytes
        most = max(sent.values(), default=0)
        for module in modules.each:
            if module.ranks < 2 or most >= self.sent * module.nbytes:
                continue
            if len(module.bypassed) == module.stepped >= self.alone:
                yield _bypassed(module)
            least = 1 if module.averaged else self.alone
            if len(module.apart) < least:
                continue
            places = Counter((each.entered_at, each.backward_at) for each in module.apart)
            entered_at, backward_at = places.most_common(1)[0][0]
            last = module.apart[-1]
            before = (
                "no earlier one averages them either"
                if not last.averaged
                else f"only {amounts.count(last.averaged, 'earlier pass', 'earlier passes')} "
                "averaged them"
            )
            yield Finding(
                entered_at or backward_at,
                f"the last backward before the step of `{module.what}` runs inside no_sync(), and "
                f"{before}: the {module.ranks} ranks step with different gradients",
                steps=len(module.apart),
                per_step=1.0,
                places=places_of(entered_at, backward_at),
            )


def _bypassed(module: DataParallelModule) -> Finding:
    """No backward of any step averaged anything."""
    ((called_at, n),) = Counter(module.bypassed).most_common(1)
    return Finding(
        called_at,
        f"the loss comes from a call that bypasses the DistributedDataParallel around "
        f"`{module.what}`, so no gradient is averaged: the {module.ranks} ranks step with different "
        "gradients",
        steps=n,
        per_step=1.0,
        remedy=Remedy(
            "Call the wrapped module: model(x), not model.module(x). Move what another method of the "
            "inner module does into its forward()."
        ),
    )


Place = tuple[str, int]


@dataclass(frozen=True)
class LoaderLength:
    """A loader, where this rank makes it and goes over it, and how many batches an epoch of it has
    on each rank (``(rank, batches)``, by rank).
    """

    made_at: Site
    at: Site
    batches: tuple[tuple[int, int], ...]

    @property
    def uneven(self) -> bool:
        """Whether the ranks differ."""
        return len({n for _, n in self.batches}) > 1


@dataclass(frozen=True)
class LoaderLengths(Table):
    """Those loaders that every recorded rank made, with a length on each."""

    parts: ClassVar[tuple[str, ...]] = ("loaders",)

    each: tuple[LoaderLength, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LoaderLengths:
        members: tuple[Recording, ...] = getattr(evidence.recording, MEMBERS, ())
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        own = _loaders(evidence.recording)
        ranks = [
            (each.rank, _loaders(each)) for each in sorted(members, key=lambda each: each.rank)
        ]
        found = []
        for place, (made_at, at, _) in own.items():
            lengths = [(rank, there[place][2]) for rank, there in ranks if place in there]
            if len(lengths) == len(ranks) and at is not None:
                found.append(LoaderLength(made_at, at, tuple(lengths)))
        return cls(tuple(found))


def _loaders(recording: Recording) -> dict[Place, tuple[Site, Site | None, int]]:
    """By their line; without lines whose loaders differ in length or are read in several places."""
    found: dict[Place, tuple[Site, Site | None, int]] = {}
    differ = set()
    for row in recording.rows(LoaderRow):
        if row.made_at is None:
            continue
        made_at = recording.site(row.made_at)
        place = made_at.file, made_at.line
        loader = made_at, None if row.at is None else recording.site(row.at), row.length or 0
        if row.length is None or found.setdefault(place, loader) != loader:
            differ.add(place)
    return {place: loader for place, loader in found.items() if place not in differ}


@dataclass(frozen=True)
class SameOrderEachEpoch(Rule):
    """A DistributedSampler shuffles every epoch alike"""

    code = "DIST007"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Call sampler.set_epoch(epoch) at the beginning of each epoch, before the loader is "
        "iterated; a run that resumes goes on with the epoch's number, not with 0."
    )

    epochs: int = knob(2, "Report only if at least this many epochs of a pass share a number.")
    share: float = knob(0.5, "Report only if at least this share of the steps takes batches of it.")

    def detect(self, samplers: SamplerEpochs, source: Source) -> Iterator[Finding]:
        for each in samplers.each:
            if each.epochs < self.epochs or each.replicas < 2:
                continue
            if each.share < self.share:
                continue
            loop = loop_of_epochs(source, each.stack)
            yield Finding(
                loop or each.site,
                f"{amounts.count(each.epochs, 'epoch')} began in the same order: the "
                f"DistributedSampler was given epoch {each.epoch} each time",
                steps=each.epochs,
                places=places_of(loop, each.site) if loop else (),
            )


@dataclass(frozen=True)
class SameBatchesOnAllRanks(Rule):
    """All ranks of a data parallel training get the same batches"""

    code = "DIST008"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Give the loader sampler=DistributedSampler(dataset) instead of shuffle=True, and "
        "call sampler.set_epoch(epoch) at the beginning of each epoch; an IterableDataset takes "
        "its own share by torch.distributed.get_rank()."
    )

    least: int = knob(5, "Report only if all ranks got equal batches in at least this many steps.")
    share: float = knob(0.9, "Report only if at least this share of steps with batches does it.")
    fed: float = knob(0.5, "Report only if at least this share of all steps takes a batch of it.")
    different: int = knob(3, "Report only if all ranks got at least this many different batches.")

    def detect(self, batches: RankBatches, modules: DataParallel) -> Iterator[Finding]:
        over_all = any(
            module.ranks == batches.world_size and module.averaged for module in modules.each
        )
        for each in batches.each:
            if not over_all or each.steps < max(self.least, self.share * each.of):
                continue
            if each.different < self.different or each.fed < self.fed:
                continue
            yield Finding(
                each.made_at,
                f"{each.ranks} ranks got the same batches in {each.steps} of {each.of} steps: "
                "what one rank computes, the others compute again",
                steps=each.steps,
                per_step=1.0,
            )


class UnevenLoaders(Rule):
    """The ranks of a data parallel training have different numbers of batches"""

    code = "DIST012"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Let a DistributedSampler divide the dataset: it pads the shares to one length "
        "(drop_last=True cuts them). If the shares must differ, train inside `with model.join():`."
    )

    def detect(
        self, lengths: LoaderLengths, modules: DataParallel, source: Source
    ) -> Iterator[Finding]:
        for each in lengths.each:
            ranks = len(each.batches)
            over_all = any(one.ranks == ranks and one.averaged for one in modules.each)
            if not each.uneven or not over_all or joins(source, each.at.file):
                continue
            if not exhausts(source, each.at) or not trains(source, each.at.file, each.at.line):
                continue
            most = max(each.batches, key=lambda one: one[1])
            fewest = min(each.batches, key=lambda one: one[1])
            yield Finding(
                each.made_at,
                f"rank {most[0]} has {amounts.count(most[1], 'batch', 'batches')} an epoch and "
                f"rank {fewest[0]} has {fewest[1]:,}: the loop at {each.at} runs to the end of "
                "each loader, and the ranks with more batches wait for gradients that never come",
                facts=(
                    ("batches of an epoch by rank", ", ".join(f"{n:,}" for _, n in each.batches)),
                ),
            )
