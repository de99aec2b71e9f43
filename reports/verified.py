"""What re-runs with the patches measured, in words and two bars: for the page and the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Report
from auditor.model.sections import Verification, Verified

from . import text

NOTE_LIMIT = 600

UNDECIDED = frozenset({"broken", "inconclusive"})
"""What all good patches together may come to, of which nothing is promised."""

_WORDS = {
    "better": "Verified: better with this change",
    "same": "Verified: no difference in step time proven",
    "worse": "Verified: slower with this change",
    "broken": "Not good: left out of fixes.patch",
    "inconclusive": "Inconclusive: too few runs to tell",
}
NOISY = 2.0
"""If unpatched runs may differ by more than this factor, the interval proves nothing."""
_UNTIMED = "Checked in the rehearsal: the result, not the time"


@dataclass(frozen=True)
class Proof:
    """What a re-run with the patch measured; shares scale bars by the slower run. Times 0: none."""

    words: str
    status: str
    before: float
    after: float
    before_share: float
    after_share: float
    detail: str


def proof(verified: Verified) -> Proof:
    """One finding's bars."""
    before, after = verified.step_us_before or 0.0, verified.step_us_after or 0.0
    slower = max(before, after, 1e-9)
    return Proof(
        words=_UNTIMED
        if verified.status == "same" and verified.ratio is None
        else _WORDS[verified.status],
        status=verified.status,
        before=before,
        after=after,
        before_share=before / slower,
        after_share=after / slower,
        detail="; ".join(_parts(verified)),
    )


def banner(report: Report) -> tuple[str, ...]:
    """What all good patches together saved, as measured, and which; empty if not measured."""
    verification = report.verification
    together = verification.together if verification is not None else None
    if (
        verification is None
        or together is None
        or together.status in UNDECIDED
        or together.ratio is None
    ):
        return ()
    patches = (
        f"with the patch{'es' * (len(verification.codes) > 1)} for {', '.join(verification.codes)}"
    )
    return speed(together), f"{', '.join(_gains(together))} {text.one_line(patches, 400)}".strip()


def settled(finding: Finding) -> bool:
    """True if re-runs with its patch measured the saving, which replaces the audit's price."""
    verified = finding.verified
    if verified is None or verified.status == "inconclusive":
        return False
    return verified.status != "same" or verified.ratio is not None


def nothing_proven(report: Report) -> str:
    """What stands below the prices where patches were timed again and none is proven to be better;
    empty if one is, or none was timed. A price that runs did not settle stays what it is.
    """
    verification, tried = (
        report.verification,
        [f.verified for f in report.findings if f.verified is not None],
    )
    if verification is None or banner(report) or any(each.status == "better" for each in tried):
        return ""
    runs = amounts.count(verification.runs, "run")
    codes = dict.fromkeys(
        f.code for f in report.findings if f.verified and f.verified.status == "inconclusive"
    )
    if codes:
        patches = f"the patch{'es' * (len(codes) > 1)} for {text.one_line(', '.join(codes), 400)}"
        helps = "help" if len(codes) > 1 else "helps"
        return (
            f"re-run: {runs} do not tell yet whether {patches} {helps}; give audit verify a larger "
            "--budget"
        )
    return (
        f"re-run: no patch is proven to be better, by {runs}"
        if any(each.ratio is not None for each in tried)
        else ""
    )


def dropped(report: Report) -> str:
    """Patches that re-runs have shown not to work; empty if all work."""
    broken = [
        f.code for f in report.findings if f.verified is not None and f.verified.status == "broken"
    ]
    if not broken:
        return ""
    codes = text.one_line(", ".join(dict.fromkeys(broken)), 400)
    return (
        f"left out: with the patch{'es' * (len(broken) > 1)} for {codes} the target fails or "
        "computes something else"
    )


def line(finding: Finding) -> str:
    """One line below a finding; empty if its patch was not tried."""
    verified = finding.verified
    if verified is None:
        return ""
    word = {"broken": "patch left out", "same": "verified", "inconclusive": "inconclusive"}.get(
        verified.status, f"verified {verified.status}"
    )
    if verified.status == "same" and verified.ratio is None:
        word = "checked, not timed"
    return f"{word}: {'; '.join(_parts(verified))}"


def method(verification: Verification) -> Iterator[str]:
    """How it was verified: how many runs, the noise floor, what was left out. One sentence each."""
    yield (
        f"verified by {amounts.count(verification.runs, 'run')} of "
        f"{amounts.count(verification.steps, 'step')} in {verification.seconds:.0f} s, with and "
        "without the patches in turn, each a fresh process in a copy of the project"
    )
    if verification.noise is not None:
        low, high = verification.noise
        yield (
            f"noise floor: the step time of unpatched runs over unpatched runs is {low:.3f} to "
            f"{high:.3f} (99% interval)"
            if 1 / NOISY <= low <= high <= NOISY
            else "too noisy here to tell: the step times of unpatched runs differ too much"
        )
    for note in verification.notes:
        yield text.one_line(note, NOTE_LIMIT)


def _gains(verified: Verified) -> Iterator[str]:
    before, after = verified.peak_bytes_before, verified.peak_bytes_after
    if before and after is not None and abs(after / before - 1) >= 0.01:
        yield (
            f"{amounts.percent(abs(1 - after / before))} {'less' if after < before else 'more'} "
            "memory"
        )
    if verified.same_result is not None:
        yield "same losses" if verified.same_result else "other losses"


def speed(verified: Verified) -> str:
    """``1.83x faster [1.79-1.88]``, or that no difference was proven."""
    ratio, low, high = verified.ratio, verified.ratio_low, verified.ratio_high
    if ratio is None or low is None or high is None or min(ratio, low) <= 0:
        return "step time not compared"
    if low <= 1.0 <= high:
        return f"no difference in step time proven [{1 / high:.2f}-{1 / low:.2f}x]"
    if ratio < 1.0:
        return f"{1 / ratio:.2f}x faster [{1 / high:.2f}-{1 / low:.2f}]"
    return f"{ratio:.2f}x slower [{low:.2f}-{high:.2f}]"


def _change(what: str, before: str, after: str) -> str:
    return (
        f"{what} {before} before and after"
        if before == after
        else f"{what} {before} before, {after} after"
    )


def _parts(verified: Verified) -> Iterator[str]:
    if verified.ratio is not None:
        yield speed(verified) + (
            f", {amounts.count(verified.pairs, 'pair')} of runs" if verified.pairs else ""
        )
    if verified.peak_bytes_before is not None and verified.peak_bytes_after is not None:
        yield _change(
            "peak memory",
            amounts.size(verified.peak_bytes_before),
            amounts.size(verified.peak_bytes_after),
        )
    if verified.syncs_before is not None and verified.syncs_after is not None:
        yield _change(
            "host syncs per step",
            amounts.digits(verified.syncs_before),
            amounts.digits(verified.syncs_after),
        )
    if verified.same_result is not None:
        yield (
            "the training result is the same"
            if verified.same_result
            else "the training result differs"
        )
    if verified.note:
        yield text.one_line(verified.note, NOTE_LIMIT)
