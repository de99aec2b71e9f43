"""What is said of each case that is a trace, word by word: message, facts, price, severity, advice.

``python -m tests.rules.test_said`` writes ``said.json`` anew; read its diff before committing it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.model import Finding
from auditor.recordings.standalone import RankedTraces, TraceRecording
from auditor.timeline import fleet, trace_files
from tests.rules.test_rules import HERE, RULES, TRACED, factories, load

SAID = HERE / "said.json"
NUMBERS = ("steps", "per_step", "lost_us_per_step", "lost_bytes")


def cases() -> list[tuple[str, str, str]]:
    """Rule, file and name of each case that is a trace."""
    return [
        (code, kind, name)
        for code in RULES
        for kind in ("fires", "silent")
        for name in factories(HERE / code.lower() / f"{kind}.py")
        if name.endswith(TRACED)
    ]


def judged(code: str, kind: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """What the rule says of a case, in the order of its findings."""
    made = getattr(load(HERE / code.lower() / f"{kind}.py"), name)()
    for number, content in enumerate([made] if isinstance(made, str) else made):
        (folder / f"rank{number}.json").write_text(content)
    recording = (
        TraceRecording(folder / "rank0.json")
        if isinstance(made, str)
        else RankedTraces(folder, fleet(trace_files(folder)))
    )
    return [said(each) for each in engine.judge(Evidence(recording), (RULES[code],)).findings]


def said(finding: Finding) -> dict[str, Any]:
    """A finding as JSON keeps it, without what it lacks; numbers to six digits."""
    assert finding.severity is not None
    told = {
        "message": finding.message,
        "severity": finding.severity.value,
        **{name: getattr(finding, name) for name in NUMBERS},
        "facts": [f"{label}: {text}" for label, text in finding.facts],
        "advice": finding.remedy.text if finding.remedy is not None else None,
    }
    return {
        name: float(f"{value:.6g}") if isinstance(value, (int, float)) else value
        for name, value in told.items()
        if value is not None and value != []
    }


KNOWN = json.loads(SAID.read_text()) if SAID.is_file() else {}


@pytest.mark.parametrize("case", sorted(KNOWN))
def test_what_is_said_of_a_trace(case: str, tmp_path: Path) -> None:
    code, kind, name = case.split("/")
    found = judged(code, kind, name, tmp_path)
    assert found == KNOWN[case], "if it is meant: python -m tests.rules.test_said"


def test_every_trace_that_fires_is_among_them() -> None:
    wanted = {"/".join(case) for case in cases() if case[1] == "fires"}
    assert wanted <= KNOWN.keys() <= {"/".join(case) for case in cases()}


if __name__ == "__main__":
    written = {}
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            if found := judged(*case, Path(folder)):
                written["/".join(case)] = found
    SAID.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
