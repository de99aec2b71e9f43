"""What CFG008 says of batches in float64 that are only cast to a narrower dtype."""

from __future__ import annotations

import pytest
from auditor.rules.cfg.cfg008_float64_creeps import Float64InTheStep

from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from tests.rules.asking import ask
from tests.rules.doubles import doubles

LINE = Site("train.py", 2, "", "x = x.to(device).float()")


def found(elements, *, steps=2, trained=0.0):
    facts = {"how": "narrowed", "n": steps, "elements": elements, "steps": steps}
    tables = doubles(LINE, trained=trained, **facts)
    return list(ask(Float64InTheStep(), *tables, Source({"train.py": ""})))


@pytest.mark.parametrize(("elements", "told"), [(2 * 8192, True), (2 * 8191, False)])
def test_from_so_many_bytes_in_a_step(elements, told):
    findings = found(elements)
    assert bool(findings) is told
    for each in findings:
        assert (each.site, each.severity, each.per_step) == (LINE, Severity.NOTE, 1.0)
        assert each.message.startswith("64 KiB of float64 come into each step")


def test_a_program_in_float64_narrows_on_purpose():
    assert found(100_000, trained=0.9) == []
