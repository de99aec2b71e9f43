"""CKPT002, 8 and 10: checkpoints of activations and of compiled models, and what is brought back in part."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.grouping import together
from auditor.evidence.recorded.compiled_regions import CompiledRegions
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.torch_save import Saves
from auditor.evidence.source.compile_calls import compile_call
from auditor.evidence.source.files import Source, unparsed
from auditor.evidence.source.statements import shorten
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule

from .rows import PartialResumeRow, RecomputeRow


@dataclass(frozen=True)
class CheckpointVariantNotChosen(Rule):
    """Activations are recomputed by the old variant of checkpointing, by default."""

    code = "CKPT002"
    severity = Severity.NOTE
    since = "0.1"

    def detect(
        self, recompute: Rows[RecomputeRow], steps: Steps, source: Source
    ) -> Iterator[Finding]:
        done = (row for row in recompute if row.step < len(steps.loud))
        for calls in together(done, lambda row: (row.at, row.name, row.library)):
            name, library = calls[0].name, calls[0].library
            lost = any(row.lost for row in calls)
            if library and not lost:
                continue  # a library's choice, that the line cannot change
            pattern = step_pattern({row.step for row in calls}, len(steps.loud))
            yield Finding(
                calls[0].site,
                _said(name, pattern, lost=lost),
                steps=len(pattern.seen),
                per_step=sum(row.n for row in calls) / pattern.of,
                severity=Severity.ERROR if lost else None,
                facts=(("called by", library),) if library else (),
                remedy=_not_reentrant(calls[0].site, source.called(calls[0].site, name)),
            )


def _not_reentrant(site: Site, call: str) -> Remedy:
    """``call`` is the last name of the call on the line; empty where it has no such call."""
    text = (
        "Pass use_reentrant=False: it gives gradients whatever went in, and takes keyword "
        "arguments."
    )
    if not call:
        return Remedy(text)
    reason = "the same numbers by another implementation; parameters that got no gradient get one"
    return Remedy(text, (Edit(site, "set_keyword", call, "use_reentrant", "False", reason=reason),))


def _said(name: str, pattern: StepPattern, *, lost: bool) -> str:
    if lost:
        return (
            f"{name} runs in its re-entrant variant and nothing that went in has a gradient: "
            f"the parameters inside got none, on {pattern}"
        )
    return (
        f"{name} is called without use_reentrant, on {pattern}: torch takes the old variant, and "
        "will refuse"
    )


@dataclass(frozen=True)
class CompiledPrefix(Rule):
    """The weights have the names of a compiled module"""

    code = "CKPT008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Save model.state_dict() of the module that was given to torch.compile, or compile in "
        "place with model.compile(); of a file that is there, take '_orig_mod.' out of the keys."
    )

    def detect(self, saves: Saves, regions: CompiledRegions, source: Source) -> Iterator[Finding]:
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


# -- compiled names --------------------------------------------------------------------------------
# What a program knows of the names that a compiled module gives its weights, read off the source.


PREFIX = "_orig_mod"
"""The name under which ``torch.compile(module)`` holds the module that it was given."""

_NAMED = re.compile(rf"(?<!\w){PREFIX}(?!\w)")


def knows_prefix(source: Source) -> bool:
    """Whether the program names the prefix anywhere: to take it off, or the module behind it."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == PREFIX)
        or (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _NAMED.search(node.value)
        )
        for file, text in source.texts.items()
        if PREFIX in text
        for node in source.nodes(file)
    )


def loads_into_compiled(source: Source, site: Site) -> bool:
    """Whether a state is loaded, further down in the file, into what this line compiled."""
    call = compile_call(source, site)
    if call is None or not call.target:
        return False
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "load_state_dict"
        and node.lineno > site.line
        and unparsed(node.func.value) == call.target
        for node in source.nodes(site.file)
    )


@dataclass(frozen=True)
class ResumedInPart(Rule):
    """A checkpoint holds a state that the resumed run does not load."""

    code = "CKPT010"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, resumes: Rows[PartialResumeRow]) -> Iterator[Finding]:
        told: set[tuple[int, str]] = set()
        for each in resumes:
            if (each.at, each.left_out) in told:
                continue
            told.add((each.at, each.left_out))
            places = each.site_of(each.file_at), each.site
            yield Finding(
                each.site,
                _resumed_in_part(each),
                steps=1,
                remedy=Remedy(f"Load it here too: {_call(each)}."),
                places=tuple(FoundAt(site, shorten(site.text)) for site in places),
            )


def _resumed_in_part(resume: PartialResumeRow) -> str:
    if resume.left_out == "scheduler":
        return (
            f"the optimizer's state is loaded here, and that of its {resume.owner} is not: the file "
            f"has it under {resume.key!r} after {resume.saved} of its steps, and training went on "
            f"with step {resume.now} of the schedule"
        )
    return (
        f"the scheduler's state is loaded here, and that of its {resume.owner} is not: the file has "
        f"it under {resume.key!r}, and training went on without any"
    )


def _call(resume: PartialResumeRow) -> str:
    """What to load: ``scheduler.load_state_dict(state["scheduler"])``."""
    entry = "".join(f'["{part}"]' for part in resume.key.split("."))
    return f"{resume.left_out}.load_state_dict(checkpoint{entry})"
