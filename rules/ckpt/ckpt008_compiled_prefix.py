"""CKPT008: names of a compiled module in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.recorded.compiled_regions import CompiledRegions
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.torch_save import Saves
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

from .compiled_names import PREFIX, knows_prefix, loads_into_compiled


@dataclass(frozen=True)
class CompiledPrefix(Rule):
    """The weights have the names of a compiled module"""

    code = "CKPT008"
    severity = Severity.NOTE
    since = "0.1"

    def detect(
        self, saves: Saves, regions: CompiledRegions, source: Source, machine: Machine
    ) -> Iterator[Finding]:
        saves.need_saves()
        if knows_prefix(source) or any(
            loads_into_compiled(source, each.site) for each in regions.regions
        ):
            return
        for line in saves.lines():
            if line.compiled:
                yield Finding(
                    line.site,
                    "the weights that are saved here have the names of a compiled module, such as "
                    f"{line.compiled}: load_state_dict of the plain model refuses them",
                    steps=len(line.pattern.seen),
                    per_step=line.per_step,
                    seen_on=machine.device,
                )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            named = [each for each in checkpoint.weights if PREFIX in each.name.split(".")]
            if not named:
                continue
            yield Finding(
                None,
                f"{checkpoint.name}: {amounts.count(len(named), 'weight')} of "
                f"{len(checkpoint.weights)} named as in a compiled module, such as {named[0].name}",
                steps=1,
                seen_on="source",
                facts=(("file", checkpoint.scan.path),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save model.state_dict() of the module that was given to torch.compile, or compile in "
            "place with model.compile(); of a file that is there, take '_orig_mod.' out of the keys."
        )
