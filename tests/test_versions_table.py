"""How benchmarks/versions.py reads what pytest wrote, and where it puts a row of docs/versions.md."""

from __future__ import annotations

import re

import pytest

from benchmarks import versions
from benchmarks.versions import HEAD, Outcome

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="good"/>
<testcase classname="tests.a.test_b" name="bad"><failure message="x"/></testcase>
<testcase classname="tests.a.test_b" name="broken"><error message="x"/></testcase>
<testcase classname="tests.a.test_b" name="left"><skipped message="x"/></testcase>
</testsuite></testsuites>"""
ROWS = (
    "| 2.8.0 | 3.11.7 | 1 pass | 9 pass |  |\n",
    "| 2.15.0+cu132 | 3.9.1 | 1 pass | 9 pass |  |\n",
    "| 2.15.0+cu132 | 3.11.7 | 1 pass | 9 pass |  |\n",
)


def test_the_outcome_names_what_failed():
    outcome = versions.read(JUNIT)
    assert outcome == Outcome(1, 1, ("test_b.bad", "test_b.broken"))
    assert str(outcome) == "1 pass, 2 fail, 1 skipped"
    assert str(Outcome(3, 0, ())) == "3 pass"


@pytest.mark.parametrize(
    ("failures", "more"), [(versions.LISTED, ""), (versions.LISTED + 1, " and 1 more")]
)
def test_a_row_names_the_first_failures(failures, more):
    failed = tuple(f"t{number}" for number in range(failures))
    line = versions.row("2.8.0", "3.11.7", Outcome(1, 0, ()), Outcome(9, 0, failed))
    assert line.endswith(f"`t3`{more} |\n") and "t4" not in line


def test_rows_stand_in_the_order_of_versions_and_a_pair_stands_once():
    page = f"Before.\n\n{HEAD}\nAfter.\n"
    for line in reversed(ROWS):
        page = versions.placed(page, line)
    assert page == f"Before.\n\n{HEAD}{''.join(ROWS)}\nAfter.\n"
    again = ROWS[1].replace("9 pass", "8 pass, 1 fail")
    assert versions.placed(page, again) == page.replace(ROWS[1], again)
    with pytest.raises(ValueError, match="no table"):
        versions.placed("Without.\n", ROWS[0])


def test_the_page_has_the_table_and_the_chosen_tests_exist():
    page = versions.PAGE.read_text("utf-8")
    rows = re.match(r"(?:\|.*\n)*", page.partition(HEAD)[2])[0].splitlines(keepends=True)
    assert rows
    for line in rows:
        assert versions.placed(page, line) == page, "its rows are in order"
    assert all((versions.ROOT / name).is_file() for name in (*versions.CHOSEN, versions.DEMO[0]))
