"""One patch under trial: its pairs of runs, what they say by now, and the words for it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from auditor import patch, redaction
from auditor.errors import AuditProblem
from auditor.extensions.verify.intervals import MOST_PAIRS, Interval, of_pairs
from auditor.extensions.verify.trials import Agreement, Measured, agree, tolerance_for
from auditor.model import Edit, Report
from auditor.model.sections import Status, Verified
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording
from auditor.recordings.writer import content_digest

LESS_MEMORY = 0.99
"""A patch that leaves the time as it is counts as better when the device's peak is at most this
share of what it was: the allocator's counters are exact, so 1 % is no noise."""

SAME_WITHIN = 1.1
"""A patch counts as one that changes nothing where its interval lies within this factor of 1 on
both sides (Schuirmann 1987: two one-sided tests); a wider one that holds 1 may hide a gain, and is
inconclusive until ``MOST_PAIRS`` pairs are made."""


@dataclass
class Arm:
    """A candidate and its runs so far, each beside the unpatched run of its round."""

    candidate: Candidate
    pairs: list[tuple[Measured, Measured]] = field(default_factory=list)
    broken: str = ""
    unloaded: bool = False
    agreement: Agreement | None = None

    def add(self, before: Measured, after: Measured) -> None:
        """Take in a pair: a patched run that failed, or computed otherwise, breaks the patch."""
        self.pairs.append((before, after))
        self.unloaded = self.unloaded or (
            not after.failed and not self.candidate.paths <= after.loaded
        )
        if after.failed:
            self.broken = f"with the patch the target fails: {after.failed}"
            return
        self.agreement = agree(before.results, after.results, *tolerance_for(self.candidate.edits))

    @property
    def differs(self) -> bool:
        """True if the last patched run computed something else than the unpatched one."""
        return not self.broken and self.agreement is not None and not self.agreement.same

    def break_by_result(self, doubt: str = "") -> None:
        """The difference was confirmed, or could not be: then ``doubt`` says so."""
        assert self.agreement is not None
        self.broken = (
            f"with the patch the target computes something else: {self.agreement.note}{doubt}"
        )

    @property
    def timed(self) -> bool:
        """True if its runs have times to compare."""
        return bool(self.pairs) and all(run.step_us for pair in self.pairs for run in pair)

    def interval(self) -> Interval | None:
        """Of the ratio of step times, as far as the pairs allow."""
        if not self.timed:
            return None
        before, after = zip(
            *((one.step_us or 0.0, other.step_us or 0.0) for one, other in self.pairs), strict=True
        )
        return of_pairs(before, after)

    def decided(self, noise: Interval | None) -> bool:
        """True if no further pair is made: proven, nothing to time, or no more looks allowed."""
        if self.broken or self.unloaded or len(self.pairs) >= MOST_PAIRS:
            return True
        return _proven(self.interval(), noise)

    def verified(self, noise: Interval | None, *, repeatable: bool) -> Verified | None:
        """What the report says; None without runs that used the patched file."""
        if self.unloaded or not self.pairs:
            return None
        interval = self.interval()
        before, after = [one for one, _ in self.pairs], [other for _, other in self.pairs]
        compared = repeatable and before[0].results.any
        return Verified(
            status=self._status(interval, noise),
            step_us_before=_typical(run.step_us for run in before),
            step_us_after=_typical(run.step_us for run in after),
            ratio=interval.ratio if interval is not None else None,
            ratio_low=interval.low if interval is not None else None,
            ratio_high=interval.high if interval is not None else None,
            peak_bytes_before=peak_of(before),
            peak_bytes_after=peak_of(after),
            same_result=self.agreement.same if compared and self.agreement is not None else None,
            pairs=len(self.pairs),
            syncs_before=_typical(run.syncs for run in before),
            syncs_after=_typical(run.syncs for run in after),
            note=self._note(interval, repeatable=repeatable),
        )

    def _status(self, interval: Interval | None, noise: Interval | None) -> Status:
        if self.broken:
            return "broken"
        if interval is not None and _proven(interval, noise):
            return "better" if interval.high < 1.0 else "worse"
        if self.candidate.rehearsed or not self.timed:
            return "same"
        # no difference was proven: would one that matters have been?
        if interval is None or not (
            len(self.pairs) >= MOST_PAIRS
            or (interval.low >= 1 / SAME_WITHIN and interval.high <= SAME_WITHIN)
        ):
            return "inconclusive"
        pairs = [(one.peak_device, other.peak_device) for one, other in self.pairs]
        saves = all(
            one and other is not None and other <= LESS_MEMORY * one for one, other in pairs
        )
        return "better" if saves else "same"

    def _note(self, interval: Interval | None, *, repeatable: bool) -> str:
        if self.broken:
            return self.broken
        said = (
            self.agreement.note
            if self.agreement is not None and repeatable
            else "the target does not repeat its own losses"
        )
        if self.candidate.rehearsed:
            return f"checked in the rehearsal of the GPU path, not timed: {said}"
        if interval is None:
            return (
                f"{said}; the budget was spent after {len(self.pairs)} "
                f"pair{'s' * (len(self.pairs) != 1)} of runs"
            )
        return said


def _proven(interval: Interval | None, noise: Interval | None) -> bool:
    """The interval excludes 1, by more than two runs of the same code differ."""
    if interval is None or not interval.excludes_one:
        return False
    return noise is None or abs(math.log(interval.ratio)) > abs(math.log(noise.ratio))


def _typical(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def peak_of(runs: Iterable[Measured]) -> int | None:
    """Median peak of the device, or of the host where there is none, in bytes."""
    peak = _typical(
        run.peak_device if run.peak_device is not None else run.peak_host for run in runs
    )
    return None if peak is None else round(peak)


# -- which patches are tried -----------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One patch: the findings (their places in the report) that it answers, its edits, and the
    files as they become.

    ``rehearsed`` says that only the rehearsal of the GPU path runs the changed line: it can be
    checked there, not timed.
    """

    findings: tuple[int, ...]
    codes: tuple[str, ...]
    name: str
    edits: tuple[Edit, ...]
    files: tuple[PatchedFile, ...]
    rehearsed: bool = False

    @property
    def paths(self) -> frozenset[str]:
        """Files that it changes, relative to the directory of the run."""
        return frozenset(file.path for file in self.files)


def candidates(
    report: Report, recording: Recording, select: Collection[str], *, unsafe: bool
) -> tuple[Candidate, ...]:
    """The patches to try: safe ones (all if ``unsafe``) of the selected rules that apply."""
    found: dict[tuple[bytes, ...], Candidate] = {}
    for number, finding in enumerate(report.findings):
        own = finding.remedy.edits if finding.remedy is not None else ()
        edits = tuple(edit for edit in own if edit.safe or unsafe)
        if not edits or not finding.is_selected(select):
            continue
        files = patch.plan(edits, recording.original_bytes).files
        if not files:
            continue
        key = tuple(file.after for file in files)
        same = found.get(key)
        if same is None:
            name = f"{finding.code} {finding.site}" if finding.site else finding.code
            rehearsed = finding.seen_on in ("rehearsal", "null") or recording.device.simulated
            found[key] = Candidate((number,), (finding.code,), name, edits, files, rehearsed)
        else:
            found[key] = replace(
                same, findings=(*same.findings, number), codes=(*same.codes, finding.code)
            )
    return tuple(found.values())


def joined(chosen: Iterable[Candidate], recording: Recording) -> Candidate | None:
    """All in one patch; None without any. Edits that conflict are left out, as in fixes.patch."""
    parts = tuple(chosen)
    edits = tuple(edit for part in parts for edit in part.edits)
    files = patch.plan(edits, recording.original_bytes).files
    if not files:
        return None
    findings = tuple(number for part in parts for number in part.findings)
    codes = tuple(code for part in parts for code in part.codes)
    return Candidate(
        findings, codes, "all together", edits, files, all(part.rehearsed for part in parts)
    )


def require_unchanged(recording: Recording) -> None:
    """Raise :class:`AuditProblem` if the target cannot run as recorded: nothing to compare."""
    manifest = recording.manifest
    if recording.input != "run" or not manifest.get("passes"):
        raise AuditProblem(
            "only what audit run recorded can be run again",
            "a trace or a snapshot names no program",
        )
    if manifest.get("in_process"):
        raise AuditProblem(
            "this was audited in its own process, which cannot be started again to compare a patch",
            "audit run module:function records a step that another process can import",
        )
    if manifest.get("outcome") != "completed":
        raise AuditProblem(
            f"the audited run did not complete ({manifest.get('outcome')}), so a patched one "
            "cannot be compared"
        )
    if manifest.get("world_size", 1) != 1:
        raise AuditProblem("a job of several processes cannot be verified yet")
    hidden = manifest.get("masked_arguments")
    if hidden and redaction.ARGUMENT_MASK in "".join(manifest.get("argv", ())):
        raise AuditProblem(
            f"the value of {', '.join(hidden)} was masked in the recording, so the target cannot "
            "be run again from it",
            "audit run --verify measures the patches while the arguments are known",
        )
    project = Path(recording.cwd)
    if not project.is_dir():
        raise AuditProblem(f"{project}, where the audit ran, is not there any more")
    for path, stored in sorted((manifest.get("sources") or {}).items()):
        if not str(stored).startswith(f"{_digest(project / path)}-"):
            raise AuditProblem(
                f"{path} has changed since the audit",
                "run audit again on the files as they are now",
            )


def _digest(file: Path) -> str:
    try:
        return content_digest(redaction.redacted(file.read_bytes(), file.suffix)[0])
    except OSError:
        return "missing"
