"""What nobody told is nothing: a table without rows claims no time, no byte and no event, a rule
that is given such tables finds nothing, and a share lies between none and all.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import types
import typing
from contextlib import suppress
from functools import cached_property

import auditor.rules
import pytest
from msgspec import structs

from auditor import evidence
from auditor.judging import catalogue
from auditor.recordings.row import PassRow
from auditor.rule import NotLooked, Rule

KNOWN = {
    one
    for package in (evidence, auditor.rules)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    for one in vars(importlib.import_module(found.name)).values()
    if isinstance(one, type) and one.__module__ == found.name and "probes" not in found.name
}
TABLES = {one for one in KNOWN if dataclasses.is_dataclass(one) and not issubclass(one, Rule)}
ROWS = {one for one in KNOWN if issubclass(one, PassRow)}

ONE = {
    **dict.fromkeys(
        "DeviceIdle Job OptimizerCalls Precision RunsOptimizerCalls Structure".split(), "steps"
    ),  # a trace that marks none is one step
    "Job": "steps world_size",
    "CpuContention": "uneven",
    "Varying": "scale",
    "ModuleLoop": "same",
    "TraceMemory": "marked",
    **dict.fromkeys("Holder TraceDriver TraceWaits WaitPlace".split(), "timed"),
}
"""Numbers and flags that are 1 and true until something is known."""

WORDS = {"bytes_basis", "facts", "host_waits", "kind", "of_what", "on", "where", "workers"}
"""Properties that say in words what is not known."""

RHYTHMS = {"anomaly_rhythm", "functions", "trend", "tuned"}
"""Those that hold something else that is empty."""


@pytest.mark.parametrize("module", sorted({one.__module__ for one in TABLES}))
def test_tables_that_were_told_nothing_claim_nothing(module):
    for table in (one for one in TABLES if one.__module__ == module):
        for field in dataclasses.fields(table):
            if isinstance(field.default, int | float):
                at_first = field.name in ONE.get(table.__name__, "").split()
                assert field.default == int(at_first), f"{table.__name__}.{field.name}"
        given = inspect.signature(table).parameters.values()
        nothing = table() if all(each.default is not each.empty for each in given) else None
        for name in dir(table) if nothing is not None else ():
            if isinstance(inspect.getattr_static(table, name), property | cached_property):
                with suppress(NotLooked):
                    assert not getattr(nothing, name) or name in WORDS | RHYTHMS, name


def zero(kind):
    """Of a field's type."""
    kind = typing.get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return None if types.NoneType in options else (typing.get_origin(options[0]) or options[0])()


@pytest.mark.parametrize("row", sorted(ROWS, key=lambda one: one.__name__))
def test_a_row_of_zeros_says_nothing_and_its_fields_are_named(row):
    with pytest.raises(TypeError, match="positional"):
        row(0)
    fields = structs.fields(row)
    given = {each.name: each.default for each in fields if not each.required}
    assert given.pop("step") == -1 and given.pop("weight", 1.0) == 1.0
    assert not any(value for value in given.values() if isinstance(value, int | float))
    nothing = row(**{each.name: zero(each.type) for each in fields if each.required})
    for name in dir(row):
        if name != "home" and isinstance(inspect.getattr_static(row, name), property):
            assert not getattr(nothing, name), name


ASKED = [
    (rule, name)
    for rule in catalogue.own_rules()
    for name in ("detect", "in_trace", "in_snapshot")
    if getattr(rule, name, None) is not None and rule.code != "MEM009"  # its table is never empty
]


@pytest.mark.parametrize(("rule", "name"), ASKED, ids=lambda one: getattr(one, "code", one))
def test_a_rule_as_it_comes_finds_nothing_in_nothing(rule, name):
    method = getattr(rule(), name)
    wanted = typing.get_type_hints(getattr(method, "__wrapped__", method))
    del wanted["return"]
    with suppress(NotLooked):
        assert not list(method(**{name: table() for name, table in wanted.items()}))
    for knob, (default, text) in rule.knobs().items():
        if (
            re.search(r"\bshare\b", text)
            and isinstance(default, float)
            and (rule.code, knob) != ("MEM018", "certain")
        ):
            assert 0.0 < default < 1.0, f"{knob}: no share of anything"
