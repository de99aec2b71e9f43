"""DIST014: buffers that never change are sent to all ranks before each forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob

from .rows import BufferBroadcastRow

CLASS = "DistributedDataParallel"
NAMES = (CLASS, "DDP")
KEYWORDS = ("forward_sync_buffers", "broadcast_buffers")


@dataclass(frozen=True)
class BuffersSentUnchanged(Rule):
    """Buffers are sent to all ranks before each forward, and none of them changes"""

    code = "DIST014"
    severity = Severity.WARNING
    since = "0.1"
    edits = tuple(
        Permit(
            "set_keyword", tuple(f"torch.nn.parallel.{name}" for name in NAMES), keyword, "False"
        )
        for keyword in KEYWORDS
    )

    steps: int = knob(5, "Steps of the pass in which none must have changed.")
    least: int = knob(4096, "Bytes per step from which it is reported.")
    much: int = knob(1 << 20, "Bytes per step from which it is a warning.")
    ranks: int = knob(2, "Ranks below which nothing is sent.")

    def detect(
        self, broadcasts: Rows[BufferBroadcastRow], steps: Steps, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        watched = len(steps.loud)
        if watched < self.steps:
            return
        for each in broadcasts:
            per_step = each.n / max(1, watched)
            nbytes = each.bytes * per_step
            if each.ranks < self.ranks or each.changed or nbytes < self.least:
                continue
            buffers = amounts.count(each.buffers, "buffer")
            yield Finding(
                each.site,
                f"rank 0 sends the {buffers} of `{each.what}`, {amounts.size(each.bytes)}, to all "
                f"other ranks before each forward, and none changed in {watched} steps",
                steps=watched,
                per_step=per_step,
                seen_on=machine.device,
                severity=None if nbytes >= self.much else Severity.NOTE,
                facts=(
                    ("sent for nothing to each rank", f"{amounts.size(round(nbytes))} per step"),
                    ("forwards that waited for them", str(each.n)),
                ),
                hints=_call(source, each),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Pass broadcast_buffers=False (forward_sync_buffers=False from torch 2.13 on): each "
            "rank makes these buffers itself, and nothing changes them."
        )
        call = finding.hints_as(Call)
        if finding.site is None or not call.name or call.keyword not in KEYWORDS:
            return Remedy(text)
        reason = "a buffer that a later step changes would differ between the ranks"
        edit = Edit(finding.site, "set_keyword", call.name, call.keyword, "False", reason=reason)
        return Remedy(text, (edit,))


@dataclass(frozen=True)
class Call:
    """By what name the class is called on the line (empty where it is not), and what turns the
    broadcast off.
    """

    name: str = ""
    keyword: str = ""


def _call(source: Source, buffers: BufferBroadcastRow) -> Call:
    site = buffers.site
    if site is None:
        return Call()
    name = source.called(site, *NAMES)
    given = [each for each in KEYWORDS if source.argument(site, name, each) is not None]
    return Call(name, given[0] if given else buffers.keyword)
