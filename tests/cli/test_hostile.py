"""A stranger's recordings and reports: one sentence or a report, no traceback, no file outside."""

import gzip
import json
import os

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.recordings.folder import Recording

MANIFEST = {
    "schema": "audit-recording/1",
    "target": "t:step",
    "cwd": "/nowhere",
    "steps": 3,
    "warmup": 0,
    "device": "cuda",
    "passes": [{"name": "quiet", "steps": 3}],
    "outcome": "completed",
    "error": None,
    "environment": {"torch": "2"},
    "sources": {},
    "recorded_at": "2026-01-01T00:00:00+00:00",
    "warnings": [],
}
STEP = {"pass": "quiet", "step": 0, "us": 10.0, "rss": 1}
DEEP = b'{"schema": "audit-recording/1", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture
def analyze(tmp_path, monkeypatch):
    """Judges a recording with this manifest and these files; returns what the command line did."""
    monkeypatch.chdir(tmp_path)

    def call(manifest, **files):
        folder = tmp_path / "recording"
        folder.mkdir()
        for name, content in {"manifest__json": manifest, **files}.items():
            if not isinstance(content, bytes):
                rows = content if isinstance(content, list) else [content]
                content = "".join(json.dumps(row) + "\n" for row in rows).encode()
            (folder / name.replace("__", ".")).write_bytes(content)
        return CliRunner().invoke(main, ["analyze", str(folder), "--quiet"])

    return call


def one_sentence(result):
    assert isinstance(result.exception, SystemExit) and result.exit_code == 2
    assert result.output.startswith("audit: ") and "Traceback" not in result.output


@pytest.mark.parametrize(
    "field", ["target", "steps", "passes", "outcome", "error", "environment", "sources", "warnings"]
)
@pytest.mark.parametrize("value", [7.5, [1], {"a": {"b": [1]}, "message": 5}])
def test_manifest_with_a_field_of_another_type_is_refused(analyze, field, value):
    one_sentence(analyze({**MANIFEST, field: value}))


INFINITE = b'{"schema": "audit-recording/1", "steps": 1e999}'
NOT_RUN = {"outcome": "not run", "error": {"problem": "x", "hint": "", "detail": ""}}


@pytest.mark.parametrize(
    "manifest", [DEEP, b'{"schema": "\xff"}', b"[" * 100_000, INFINITE, {**MANIFEST, **NOT_RUN}]
)
def test_what_is_no_json_or_was_not_run_is_refused(analyze, manifest):
    one_sentence(analyze(manifest))


@pytest.mark.parametrize(
    ("files", "steps"),
    [
        ({"steps__jsonl": DEEP + b'\n{"pass": "\xff"}\n' + json.dumps(STEP).encode()}, 1),
        ({"steps__jsonl": [STEP, {**STEP, "us": "x"}, {**STEP, "step": [1]}, {**STEP, "rss": None}, {}]}, 1),
        ({"steps__jsonl": [STEP], "device_times__jsonl": [{"pass": [1]}, {"pass": "quiet", "step": 0, "us": "x"}]}, 1),
        ({"steps__jsonl": [STEP, STEP, {**STEP, "us": 1e6, "retries": "x"}, {**STEP, "us": 1e6, "queued_us": [1]}]}, 2),
        ({"steps__jsonl": [STEP] * 3, "sites__jsonl": [{"id": [1]}, {"id": 0, "file": 5, "line": "x", "function": 1}]}, 3),
        ({"steps__jsonl": [STEP], "trace__json.gz": b"no gzip"}, 1),
        ({"steps__jsonl": [STEP], "trace__json.gz": gzip.compress(b'{"traceEvents": []}')[:-6]}, 1),
        ({"steps__jsonl": [STEP], "trace__json.gz": gzip.compress(b'{"traceEvents":' + b"[" * 100_000)}, 1),
        ({"steps__jsonl": [STEP], "calls__jsonl": [{"pass": "quiet"}], "nonfinite__jsonl": [{"tensors": 5}]}, 1),
    ],
)  # fmt: skip
def test_rows_of_another_shape_are_passed_over(analyze, tmp_path, files, steps):
    result = analyze(MANIFEST, **files)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["run"]["step_us"]["n"] == steps


def test_ranks_of_another_shape_are_passed_over(tmp_path, monkeypatch):
    """A folder that holds a recording for each rank, one of which nobody wrote so."""
    first = {"pass": "quiet", "step": 0}
    batches = [first, {**first, "wait_us": "x"}, {"wait_us": 1.0}]
    parts = {"steps": [STEP, {**STEP, "peak_allocated": "x"}], "batches": batches}
    for number, rank in enumerate((0, 1, "x")):
        folder = tmp_path / "recording" / f"rank{number}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "rank": rank}))
        for part, rows in parts.items():
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["analyze", "recording", "--quiet"])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert [row["rank"] for row in report["ranks"]] == [0, 1]
    assert any("rank2 is left out" in each for each in report["warnings"])


def test_source_that_is_a_link_to_elsewhere_is_not_read(tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "recording"
    (folder / "sources").mkdir(parents=True)
    (folder / "sources" / "linked").symlink_to(tmp_path / "secret")
    (folder / "sources" / "kept").write_text("x = 1\n")
    names = {"a.py": "linked", "b.py": "kept", "c.py": "n" * 5000, "d.py": "\0"}
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "sources": names}))
    recording = Recording(folder)
    assert [recording.source_bytes(name) for name in names] == [None, b"x = 1\n", None, None]


# -- audit fix -------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_read_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("report.json")
    one_sentence(CliRunner().invoke(main, ["fix", "report.json"]))
