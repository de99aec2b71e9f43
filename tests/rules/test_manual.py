"""The pages of the manual say what the rules say of themselves: codes, severities, knobs."""

from __future__ import annotations

from pathlib import Path

from auditor.judging import catalogue
from auditor.judging.manual import written

ROOM = Path(__file__).resolve().parent.parent.parent / "rules"


def test_the_manual_on_disk_is_the_one_the_rules_say() -> None:
    for name, text in written(catalogue.own_rules()).items():
        assert (ROOM / name).read_text() == text, "run make manual"
