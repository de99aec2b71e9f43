"""What stands above the findings because it makes them mean less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from auditor.judging.build_report import HELD_EAGER, NULL_RUN, _cautions


def said(error: dict[str, Any] | None, null: bool = False) -> tuple[str, ...]:
    recording = SimpleNamespace(manifest={"error": error}, device=SimpleNamespace(null=null))
    return _cautions(SimpleNamespace(recording=recording), (), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ()),
        ({"pass_name": "quiet"}, ()),
        ({}, ()),
        ({"pass_name": "eager_held"}, (HELD_EAGER,)),
    ],
)
def test_a_program_that_ends_while_held_eager_may_not_end_so_by_itself(
    error: dict[str, Any] | None, expected: tuple[str, ...]
) -> None:
    assert said(error) == expected
    assert said(error, null=True) == (*expected, NULL_RUN)
