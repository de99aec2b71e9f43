"""What nobody told is nothing: a table without rows claims no time, no byte and no event, a rule
that is given such tables finds nothing, and a share lies between none and all.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import typing
from contextlib import suppress
from functools import cached_property

import auditor.rules
import pytest

from auditor import evidence
from auditor.judging import catalogue
from auditor.rule import NotLooked, Rule

TABLES = {
    one
    for package in (evidence, auditor.rules)
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    for one in vars(importlib.import_module(found.name)).values()
    if dataclasses.is_dataclass(one) and one.__module__ == found.name and "probes" not in found.name
    if not issubclass(one, Rule)
}

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


@pytest.mark.parametrize("table", sorted(TABLES, key=lambda one: one.__name__))
def test_a_table_that_was_told_nothing_claims_nothing(table):
    for field in dataclasses.fields(table):
        if isinstance(field.default, int | float):
            assert field.default == int(field.name in ONE.get(table.__name__, "").split())
    given = inspect.signature(table).parameters.values()
    if all(each.default is not each.empty for each in given):
        nothing = table()
        for name in dir(table):
            kind = inspect.getattr_static(table, name)
            if isinstance(kind, property | cached_property) and name not in WORDS | RHYTHMS:
                with suppress(NotLooked):
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
        if re.search(r"\bshare\b", text) and (rule.code, knob) != ("MEM018", "certain"):
            assert 0.0 < default < 1.0, f"{knob}: no share of anything"
