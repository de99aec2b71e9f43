"""What nobody told counts as nothing: an empty table claims no time, no byte and no event."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

from auditor import evidence

ONCE = {"calls", "elements", "largest", "n", "steps", "tensors"}
"""A row stands for one event at least, in one step, of one element."""

ROWS = {"IndexingLoop"}

OTHER = {
    **dict.fromkeys(
        [
            ("DeviceIdle", "steps"),
            ("Job", "steps"),
            ("OptimizerCalls", "steps"),
            ("Precision", "steps"),
            ("RunsOptimizerCalls", "steps"),
            ("Structure", "steps"),
            ("TraceWaits", "steps"),
        ],
        1,  # a trace that marks none is one step
    ),
    ("Job", "world_size"): 1,
    ("Ranks", "world_size"): 1,
    ("_Piece", "blocks"): 1,
    ("CpuContention", "uneven"): 1.0,
    ("Place", "chooses_device"): True,  # only what is known to use no GPU is said to
    ("Reads", "chooses_device"): True,
    ("Holder", "timed"): True,  # only what has no times says so
    ("TraceDriver", "timed"): True,
    ("TraceWaits", "timed"): True,
    ("WaitPlace", "timed"): True,
    ("TraceMemory", "marked"): True,
    ("SettingsLayout", "max_split_size"): -1,  # torch's word for none
}


def numbers() -> Iterator[tuple[str, str, object]]:
    """Class, field and default of all numbers and flags of the tables."""
    for found in pkgutil.walk_packages(evidence.__path__, "auditor.evidence."):
        for one in vars(importlib.import_module(found.name)).values():
            if (
                isinstance(one, type)
                and dataclasses.is_dataclass(one)
                and one.__module__ == found.name
            ):
                for field in dataclasses.fields(one):
                    if isinstance(field.default, int | float):
                        yield one.__name__, field.name, field.default
            elif (
                isinstance(one, type)
                and issubclass(one, msgspec.Struct)
                and one.__module__ == found.name
            ):
                for each in msgspec.structs.fields(one):
                    if isinstance(each.default, int | float):
                        yield one.__name__, each.name, each.default


@pytest.mark.parametrize("name", sorted({name for name, _, _ in numbers()}))
def test_a_number_or_a_flag_that_nobody_gives_is_nothing(name: str) -> None:
    given = {field: value for owner, field, value in numbers() if owner == name}
    for field, value in given.items():
        least = int(name in ROWS and field in ONCE)
        assert value == OTHER.get((name, field), least), field
        assert not isinstance(value, bool) or value is OTHER.get((name, field), False), field
