"""Ten planted NaNs (benchmarks/planted_nans.py): line, operator and module of each are named."""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from auditor.judging import catalogue
from tests.inprocess import judge

pytestmark = pytest.mark.skipif(
    not os.environ.get("AUDITOR_SLOW"), reason="takes a minute: AUDITOR_SLOW=1 runs it"
)

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "planted_nans.py"


def planted():
    spec = importlib.util.spec_from_file_location("planted_nans", PATH)
    assert spec is not None and spec.loader is not None
    module = sys.modules["planted_nans"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NANS = planted()


@pytest.mark.parametrize("name", list(NANS.TRUTH))
def test_line_operator_and_module(name, tmp_path):
    truth = NANS.TRUTH[name]

    def make():
        steps = getattr(NANS, name)()
        return lambda: next(steps)

    findings, verdicts = judge(
        tmp_path / "recording", make, (catalogue.rule("NUM002"),), roots=[PATH], steps=8
    )
    assert [finding.site.line for finding in findings] == [NANS.born_line(name)], verdicts[0].reason
    assert re.search(rf"\b{truth.operator}\b", findings[0].message)
    assert dict(findings[0].facts).get("module", "") == truth.module
