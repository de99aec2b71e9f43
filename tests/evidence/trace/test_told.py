"""What the tables say of each trace that is a case of a rule: every field and every property.

``python -m tests.evidence.trace.test_told`` writes ``told.json`` anew; read its diff before
committing it.
"""

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from auditor.rules.amp.precision import Precision
from auditor.rules.dist.communication import Job
from auditor.rules.mem.segments import TraceMemory
from auditor.rules.sync.driver_calls import TraceDriver

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import TraceSteps, devices, step_us, timeline_of
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.evidence.trace.idle import DeviceIdle, device_time
from auditor.evidence.trace.patterns import OptimizerCalls, Structure
from auditor.model import Site
from auditor.recordings.standalone import TraceRecording
from auditor.rule import NotLooked
from tests.rules.test_rules import HERE as RULES
from tests.rules.test_rules import factories, load

TOLD = Path(__file__).with_name("told.json")
TABLES: tuple[type[Table], ...] = (
    DeviceIdle,
    Job,
    OptimizerCalls,
    Precision,
    Structure,
    TraceDriver,
    TraceMemory,
    TraceSteps,
    TraceWaits,
)


def cases() -> list[str]:
    """The traces of one process that must fire."""
    return [
        f"{path.parent.name}/{name}"
        for path in sorted(RULES.glob("*/fires.py"))
        for name in factories(path)
        if name.endswith("__trace")
    ]


def plain(value: Any) -> Any:
    """A value as JSON keeps it; numbers to six digits."""
    if isinstance(value, Site):
        return f"{value} {value.function}".strip()
    if dataclasses.is_dataclass(value):
        return dict(_parts(value))
    if isinstance(value, np.generic):
        return plain(value.item())
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    return [plain(each) for each in value]


def _parts(table: Any) -> Iterator[tuple[str, Any]]:
    """Fields and properties of a dataclass, without what is empty."""
    names = [field.name for field in dataclasses.fields(table) if field.repr]
    names += [name for name, each in vars(type(table)).items() if isinstance(each, property)]
    for name in names:
        if not name.startswith("_") and (found := plain(getattr(table, name))) not in (
            None,
            [],
            {},
        ):
            yield name, found


def told(case: str, folder: Path) -> dict[str, Any]:
    """By table what it says, or why it says nothing."""
    code, name = case.split("/")
    (folder / "trace.json").write_text(getattr(load(RULES / code / "fires.py"), name)())
    evidence = Evidence(TraceRecording(folder / "trace.json"))
    found = {}
    for table in TABLES:
        try:
            found[table.__name__] = plain(evidence.get(table))
        except NotLooked as why:
            found[table.__name__] = str(why)
    line = timeline_of(evidence)
    found["device_time"] = plain(device_time(evidence))
    found["facts"] = plain({"devices": devices(line), "step_us": step_us(line)})
    return found


KNOWN = json.loads(TOLD.read_text()) if TOLD.is_file() else {}


@pytest.mark.parametrize("case", sorted(KNOWN))
def test_what_the_tables_say_of_a_trace(case: str, tmp_path: Path) -> None:
    found, said = told(case, tmp_path), "if it is meant: python -m tests.evidence.trace.test_told"
    for table, known in KNOWN[case].items():
        assert found[table] == known, f"{table}: {said}"
    assert found.keys() == KNOWN[case].keys()


def test_every_case_is_among_them() -> None:
    assert KNOWN.keys() == set(cases())


if __name__ == "__main__":
    lines = []
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            tables = ",\n".join(
                f"{json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}"
                for name, each in told(case, Path(folder)).items()
            )
            lines.append(f"{json.dumps(case)}: {{\n{tables}\n}}")
    TOLD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
