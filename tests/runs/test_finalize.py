"""What the parent says of a run that had to be ended."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter
from auditor.runs import finalize
from auditor.runs.plan import Plan

PLAIN = "the target did not finish in the time given"


def recorded(folder, *compiled):
    writer = RecordingWriter(folder)
    for what, us in compiled:
        writer.add_fields("compiles", {"pass": "warmup", "step": 0, "what": what, "us": us})
    writer.close()
    writer.save(
        {
            "schema": SCHEMA,
            "cwd": str(folder),
            "outcome": "interrupted",
            "finished": False,
            "passes": [],
        }
    )


def said(folder, ended, seconds):
    plan = Plan("t:s", (), 1, 0, "cpu", str(folder), ())
    child = SimpleNamespace(unwritten="", left=[], output=b"", seconds=seconds)
    return finalize.seal(plan, ended, child).manifest["error"]["message"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("compiled", "added"),
    [
        ([("compile", 5e6), ("backward", 5e6)], ": torch.compile took 10 of 20 s (2 compilations)"),
        ([("compile", 15e6)], ": torch.compile took 15 of 20 s (1 compilation)"),
        ([("compile", 4.9e6), ("backward", 5e6)], ""),
        ([("recompile", 15e6)], ""),
        ([], ""),
    ],
)
def test_a_run_whose_time_compilation_took_says_so(tmp_path, compiled, added):
    recorded(tmp_path, *compiled)
    assert said(tmp_path, "timeout", 20.0) == PLAIN + added


def test_only_a_run_that_ran_out_of_time_says_so(tmp_path):
    recorded(tmp_path, ("compile", 15e6))
    assert "torch.compile" not in said(tmp_path, "interrupted", 20.0)
    assert finalize.compiled_for(Recording(tmp_path), 31.0) == ""


def test_where_it_hung_names_no_frame_of_ours(tmp_path):
    root = Path(finalize.__file__).resolve().parents[2]
    frames = [
        f'  File "{root / "rules/dist/probes/collectives.py"}", line 109 in counted',
        f'  File "{root / "auditor/capture/child.py"}", line 1 in main',
        f'  File "{tmp_path / "rules/train.py"}", line 9 in exchange',
    ]
    recorded(tmp_path)
    (tmp_path / finalize.STACKS_FILE).write_text("\n".join(frames))
    plan = Plan("t:s", (), 1, 0, "cpu", str(tmp_path), ())
    child = SimpleNamespace(unwritten="", left=[], output=b"", seconds=1.0)
    error = finalize.seal(plan, "timeout", child).manifest["error"]  # type: ignore[arg-type]
    assert error["traceback"].strip() == frames[2].strip()


@pytest.mark.parametrize(
    ("ended", "before", "after"),
    [
        ("interrupted", "completed", "interrupted"),
        ("interrupted", "raised", "raised"),
        (finalize.FOLLOWED, "completed", "completed"),
        (finalize.FOLLOWED, "oom", "oom"),
        ("timeout", "completed", "timeout"),
    ],
)
def test_what_ends_a_run_that_winds_up(tmp_path, ended, before, after):
    recorded(tmp_path)
    path = tmp_path / "manifest.json"
    manifest = {**json.loads(path.read_text()), "outcome": before, "finished": True}
    path.write_text(json.dumps(manifest))
    plan = Plan("t:s", (), 1, 0, "cpu", str(tmp_path), ())
    child = SimpleNamespace(unwritten="", left=[], output=b"", seconds=1.0)
    assert finalize.seal(plan, ended, child).outcome == after  # type: ignore[arg-type]
