"""What stands above the findings of every report: broken rules, packs and probes, and a target that
trained nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.evidence.absent import BROKEN_PROBE
from auditor.evidence.recorded.training import Trained

if TYPE_CHECKING:
    from auditor.model import Verdict

NAMED = 5
"""Rules that are named at most in one sentence."""


def caveats(
    trained: Trained | None, verdicts: Iterable[Verdict], broken: Iterable[str]
) -> Iterator[str]:
    """One sentence each; ``broken`` are those on rule packs that were left out."""
    if trained is not None and trained.caveat:
        yield trained.caveat
    for sentence in broken:
        yield f"{sentence}; its rules were not run"
    verdicts = tuple(verdicts)
    failed = [
        f"{each.code} ({_last_line(each.reason)})" for each in verdicts if each.status == "failed"
    ]
    if failed:
        one = len(failed) == 1
        yield (
            f"{amounts.count(len(failed), 'rule')} failed to run: {_some(failed)}; this "
            "is a fault of "
            + ("the rule, not of the target" if one else "these rules, not of the target")
        )
    reasons = dict.fromkeys(each.reason for each in verdicts if _is_blind(each))
    for reason in reasons:
        blind = [each.code for each in verdicts if _is_blind(each) and each.reason == reason]
        yield f"{reason}: {_some(blind)} could not be checked"


def _is_blind(verdict: Verdict) -> bool:
    return verdict.status == "skipped" and verdict.reason.startswith(BROKEN_PROBE)


def _some(words: list[str]) -> str:
    more = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _last_line(reason: str) -> str:
    return reason.strip().rpartition("\n")[2]
