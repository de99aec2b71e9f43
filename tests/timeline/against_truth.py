"""What the rules say of recorded traces, beside an independent ground truth: the words that join
the two, and docs/log/traces.md.

``python -m tests.timeline.against_truth FOLDER`` writes the table again; FOLDER holds
``truth.json`` and ``data/``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.model import Finding, Severity
from auditor.recordings.standalone import TraceRecording
from tests.recorded_traces import collected

Truth = dict[str, Any]

FOUND_BY = {
    "gpu_item_sync": ("SYNC001", "SYNC002"),
    "nonzero_sync": ("SYNC005",),
    "blocking_h2d_copy": ("SYNC006",),
    "blocking_d2h_copy": ("SYNC003",),
    "pageable_copies": ("SYNC007", "SYNC006", "SYNC003", "SYNC001", "SYNC002", "SYNC005"),
    "explicit_sync_in_step": ("SYNC004",),
    "allocator_calls": ("SYNC012",),
    "dataloader_wait_ge_10pct": ("DATA007",),
    "gpu_idle_ge_30pct": ("KERN001",),
    "short_kernels": ("KERN003",),
    "fp32_simt_matmul_ge_10pct": ("AMP001", "AMP002"),
    "single_tensor_optimizer": ("OPT001",),
    "exposed_comm_ge_10pct": ("DIST003",),
}
"""Defects of the truth and the rules that report them: a pageable copy is reported as the wait that
it causes.
"""

PROOF = {
    "SYNC001": ("gpu_item_sync",),
    "SYNC002": ("gpu_item_sync",),
    "SYNC003": ("blocking_d2h_copy",),
    "SYNC004": ("explicit_sync_in_step",),
    "SYNC005": ("nonzero_sync",),
    "SYNC006": ("blocking_h2d_copy",),
    "SYNC007": ("pageable_copies",),
    "SYNC012": ("allocator_calls",),
    "DATA007": ("dataloader_wait_ge_10pct",),
    "KERN001": ("gpu_idle_ge_30pct",),
    "KERN003": ("short_kernels",),
    "AMP001": ("fp32_simt_matmul_ge_10pct",),
    "AMP002": ("fp32_simt_matmul_ge_10pct",),
    "OPT001": ("single_tensor_optimizer",),
    "DIST003": ("exposed_comm_ge_10pct",),
    "CFG001": ("cudnn_autotune_in_window",),
}
"""Rules whose finding, if louder than a note, is false unless the truth lists one of these."""

DECOYS = ("cpu_item_decoy", "cudnn_autotune_in_window", "no_profiler_step", "gpu_events_missing")
"""What the truth lists and no rule may take for a defect."""


@dataclass(frozen=True)
class Judged:
    """One trace: its entry in the truth, and what the rules found."""

    file: str
    truth: Truth
    findings: tuple[Finding, ...]
    failed: tuple[str, ...]

    @property
    def visible(self):
        """Defects that the truth sees."""
        return [kind for kind, one in self.truth["defects"].items() if one["present"]]

    def found(self, kind):
        """Findings that report a kind of defect."""
        return [one for one in self.findings if one.code in FOUND_BY[kind]]

    @property
    def missed(self):
        """Visible defects that no finding reports and no reason excuses."""
        return [
            kind
            for kind in self.visible
            if kind in FOUND_BY and not self.found(kind) and not self.excuse(kind)
        ]

    @property
    def false(self):
        """Findings louder than a note that the truth contradicts."""
        loud = [one for one in self.findings if one.severity is not Severity.NOTE]
        return [one for one in loud if not self._agrees(one)]

    def _agrees(self, finding):
        if finding.code in ("DATA008", "SYNC013"):
            return self._share_of_copies("HtoD" if finding.code == "DATA008" else "DtoH") >= 0.1
        return not PROOF.get(finding.code) or any(
            kind in self.visible for kind in PROOF[finding.code]
        )

    def _share_of_copies(self, way):
        trace = self.truth["trace"]
        sent = sum(one["ms"] for kind, one in trace["memcpy"].items() if way in kind)
        return float(sent / (sum(trace["steps"]["ms"]) or float("inf")))

    def excuse(self, kind):
        """Why a visible defect is rightly not reported; empty where nothing excuses it."""
        if (
            kind == "dataloader_wait_ge_10pct"
            and self.truth["trace"]["dataloader"].get("not_hidden_by_gpu_pct", 100) < 10
        ):
            return "hidden by device work"
        if kind == "short_kernels":
            return self._why_short_kernels_cost_nothing()
        if kind == "fp32_simt_matmul_ge_10pct":
            capability = max(
                (
                    float(one)
                    for one in self.truth["trace"]["compute_capability"]
                    if one[:1].isdigit()
                ),
                default=0.0,
            )
            if not capability:
                return "the trace does not say which card"
            return "the card has no tensor cores" if capability < 7 else ""
        if kind != "allocator_calls":
            return ""
        calls = self.truth["trace"]["alloc_calls"].values()
        if any(sum(count > 0 for count in (one["per_step"] or ())[1:]) > 1 for one in calls):
            return ""
        steps = (
            self.truth["trace"]["steps"]["n"]
            or "optimizer" in self.truth["trace"]
            and self.truth["trace"]["optimizer"]
        )
        return (
            "warm-up: only before the steps or in the first"
            if steps
            else "under 1 % of a trace without steps"
        )

    def _why_short_kernels_cost_nothing(self):
        gpu = max(self.truth["trace"]["gpu"].values(), key=lambda one: one["busy_ms"])
        if gpu.get("launch_to_start_us_median", 0) > 1000:
            return "the queue was full: a kernel started a millisecond after its launch or later"
        idle = gpu["span_ms"] - gpu["busy_ms"]
        return (
            "the device idled in gaps over 1 ms, not between launches"
            if gpu["gaps_gt_1ms_ms"] >= 0.9 * idle
            else ""
        )


def judged(file, trace):
    """Ask every rule about one trace."""
    judgement = engine.judge(Evidence(TraceRecording(trace.path)), catalogue.rules())
    failed = tuple(
        f"{one.code}: {one.reason}" for one in judgement.verdicts if one.status == "failed"
    )
    return Judged(file, trace.truth, judgement.findings, failed)


def table(all_judged):
    """The Markdown table by file, and the sums by kind of defect."""
    rows = "\n".join(_row(one) for one in all_judged)
    kinds = "\n".join(_kind(kind, all_judged) for kind in FOUND_BY)
    return (
        "## By defect\n\n| defect in the truth | reported by | visible in | found | excused | "
        "missed | false |\n"
        f"|---|---|---|---|---|---|---|\n{kinds}\n\n"
        "## By file\n\n| trace | visible in the truth | findings (notes in brackets) | not "
        f"reported, and why |\n|---|---|---|---|\n{rows}\n"
    )


def _kind(kind, all_judged):
    seen = [one for one in all_judged if kind in one.visible]
    found = sum(bool(one.found(kind)) for one in seen)
    missed = sum(kind in one.missed for one in seen)
    owners = [code for code, kinds in PROOF.items() if kind in kinds]
    false = sum(finding.code in owners for one in all_judged for finding in one.false)
    excused = len(seen) - found - missed
    return (
        f"| {kind} | {' '.join(FOUND_BY[kind])} | {len(seen)} | {found} | {excused} | {missed} | "
        f"{false} |"
    )


def _row(one):
    codes = sorted({(finding.code, finding.severity is Severity.NOTE) for finding in one.findings})
    said = " ".join(
        f"({code})" if note and (code, False) not in codes else code
        for code, note in codes
        if not note or (code, False) not in codes
    )
    silent = [
        f"{kind}: {one.excuse(kind)}"
        for kind in one.visible
        if kind in FOUND_BY and not one.found(kind)
    ]
    return f"| {_short(one.file)} | {', '.join(one.visible)} | {said} | {'; '.join(silent)} |"


def _short(file):
    return f"{file.partition('/')[0]}/{file.rpartition('/')[2][:24]}"


HEAD = """# Findings on recorded traces beside the ground truth

Written by `python -m tests.timeline.against_truth FOLDER` from real traces of other people's
programs and an independent ground truth about them (`truth.json`: counts and sums made by a
separate reader). Neither is part of this repository.

Where they lie beside the checkout, `tests/timeline/test_trace_rules.py` holds the rules to them; in
every clone it does so with the recordings of `tests/recordings`. No finding louder than a note
contradicts the truth, and every visible defect is reported or excused by name. A trace that marks
no steps gives notes at most. Kinds of defect that are missing from the first table are not joined
to rules yet, or are decoys:
{decoys}.

"""


def main():
    """Write docs/log/traces.md."""
    folder = Path(sys.argv[1])
    found = sorted(collected(folder).items())
    all_judged = [judged(name, one) for name, one in found if one.truth.get("kind") == "trace"]
    page = HEAD.format(decoys=", ".join(DECOYS)) + table(all_judged)
    (Path(__file__).resolve().parents[2] / "docs/log/traces.md").write_text(page)


if __name__ == "__main__":
    main()
