"""What blocks were for: marks that the recorder made while a block lived, and from which step it
is.
"""

from types import SimpleNamespace

import pytest

from auditor.evidence.snapshot.state_at import (
    EARLIER,
    FOR_EVER,
    KEPT,
    OF_STEP,
    Owners,
)
from auditor.recordings.schema.sync import OwnerRow


class Rows:
    """Evidence of nothing but these rows, of a run that has no second one up to its error."""

    recording = SimpleNamespace(to_oom=None)

    def __init__(self, *rows: tuple[str, int, list[int]]) -> None:
        self.written = [
            OwnerRow(pass_name="memory", step=0, what=what, time_us=at, addresses=addresses)
            for what, at, addresses in rows
        ]

    def has(self, part: str) -> bool:
        return bool(self.written)

    def rows(self, kind: type[OwnerRow]) -> list[OwnerRow]:
        return self.written


OWNERS = Owners(
    Rows(
        ("step", 100, []),
        ("parameter", 150, [1, 2]),
        ("gradient", 150, [3, 1]),
        ("optimizer state", 160, [4]),
        ("other", 170, [9]),
        ("step", 200, []),
        ("parameter", 250, [1]),
        ("step", 300, []),
    )
)


@pytest.mark.parametrize(
    ("address", "born", "gone", "name"),
    [
        (1, 0, 999, "parameters"),
        (1, 150, 150, "parameters"),
        (1, 151, 249, ""),
        (1, 151, 250, "parameters"),
        (2, 151, 999, ""),
        (3, 0, 149, ""),
        (3, 0, 150, "gradients"),
        (4, 160, FOR_EVER, "optimizer state"),
        (9, 0, FOR_EVER, ""),
    ],
)
def test_a_mark_counts_while_the_block_lived(address, born, gone, name):
    assert OWNERS.purpose(address, born, gone) == name


@pytest.mark.parametrize(
    ("time", "updating"),
    [(149, False), (150, True), (160, True), (161, False), (249, False), (250, True), (251, False)],
)
def test_an_optimizer_steps_from_its_parameters_to_its_state(time, updating):
    assert OWNERS.updating(time) is updating


@pytest.mark.parametrize(
    ("born", "now", "age"),
    [
        (99, 99, EARLIER),
        (99, 350, EARLIER),
        (100, 100, OF_STEP),
        (100, 199, OF_STEP),
        (100, 200, KEPT),
        (200, 299, OF_STEP),
        (299, 300, KEPT),
    ],
)
def test_the_age_of_what_nothing_is_known_of(born, now, age):
    assert OWNERS.age(born, now) == age


def test_without_rows_nothing_is_known():
    nobody = Owners(Rows())
    assert (nobody.known, nobody.age(5, 5), nobody.updating(5)) == (False, EARLIER, False)
    assert OWNERS.known and not Owners(Rows(("step", 1, []))).known
    state_first = Owners(Rows(("optimizer state", 5, [4])))
    assert state_first.known and not state_first.updating(5)


def test_rows_are_those_of_the_run_up_to_the_error_where_there_is_one():
    first, again = Rows(("parameter", 5, [1])), Rows(("parameter", 5, [2]))
    first.recording = SimpleNamespace(to_oom=SimpleNamespace(rows=lambda kind: again.rows(kind)))
    owners = Owners(first)
    assert (owners.purpose(1, 0, 9), owners.purpose(2, 0, 9)) == ("", "parameters")
    workspace = Owners(Rows(("workspace", 5, [3])))
    assert workspace.purpose(3, 0, 9).startswith("cuBLAS") and not workspace.known
