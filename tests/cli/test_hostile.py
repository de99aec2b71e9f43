"""Recordings and reports of a stranger's: whatever they hold, one sentence or a report, never a
traceback or a file outside.
"""

from __future__ import annotations

import gzip
import json
import os

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.model import Edit, Finding, PeakBytes, Remedy, Report, Run, Severity, Site
from auditor.recordings.folder import Recording
from reports.as_json import Json

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
        (folder / "manifest.json").write_bytes(
            manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        )
        for name, content in files.items():
            rows = (
                content
                if isinstance(content, bytes)
                else b"".join(json.dumps(row).encode() + b"\n" for row in content)
            )
            (folder / name.replace("__", ".")).write_bytes(rows)
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


@pytest.mark.parametrize(
    "raw",
    [
        DEEP,
        b'{"schema": "\xff"}',
        b"[" * 100_000,
        b'{"schema": "audit-recording/1", "steps": 1e999}',
    ],
)
def test_what_is_no_json_is_refused(analyze, raw):
    one_sentence(analyze(raw))


def test_target_that_could_not_be_run_has_nothing_to_judge(analyze):
    one_sentence(
        analyze(
            {**MANIFEST, "outcome": "not run", "error": {"problem": "x", "hint": "", "detail": ""}}
        )
    )


@pytest.mark.parametrize(
    ("files", "steps"),
    [
        ({"steps__jsonl": DEEP + b'\n{"pass": "\xff"}\n' + json.dumps(STEP).encode()}, 1),
        (
            {
                "steps__jsonl": [
                    STEP,
                    {**STEP, "us": "x"},
                    {**STEP, "step": [1]},
                    {**STEP, "rss": None},
                    {},
                ]
            },
            1,
        ),
        (
            {
                "steps__jsonl": [STEP],
                "device_times__jsonl": [{"pass": [1]}, {"pass": "quiet", "step": 0, "us": "x"}],
            },
            1,
        ),
        (
            {
                "steps__jsonl": [
                    STEP,
                    STEP,
                    {**STEP, "us": 1e6, "retries": "x"},
                    {**STEP, "us": 1e6, "queued_us": [1]},
                ]
            },
            2,
        ),
        (
            {
                "steps__jsonl": [STEP] * 3,
                "sites__jsonl": [{"id": [1]}, {"id": 0, "file": 5, "line": "x", "function": 1}],
            },
            3,
        ),
        ({"steps__jsonl": [STEP], "trace__json.gz": b"no gzip"}, 1),
        ({"steps__jsonl": [STEP], "trace__json.gz": gzip.compress(b'{"traceEvents": []}')[:-6]}, 1),
        (
            {
                "steps__jsonl": [STEP],
                "trace__json.gz": gzip.compress(b'{"traceEvents":' + b"[" * 100_000),
            },
            1,
        ),
        (
            {
                "steps__jsonl": [STEP],
                "calls__jsonl": [{"pass": "quiet"}],
                "nonfinite__jsonl": [{"tensors": 5}],
            },
            1,
        ),
    ],
)
def test_rows_of_another_shape_are_passed_over(analyze, tmp_path, files, steps):
    result = analyze(MANIFEST, **files)
    assert result.exit_code == (2 if "calls__jsonl" in files else 0), (
        result.output
    )  # a rule that cannot read its part is broken
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["run"]["step_us"]["n"] == steps


def test_ranks_of_another_shape_are_passed_over(tmp_path, monkeypatch):
    """A folder that holds a recording for each rank, one of which nobody wrote so."""
    batches = [
        {"pass": "quiet", "step": 0},
        {"pass": "quiet", "step": 0, "wait_us": "x"},
        {"wait_us": 1.0},
    ]
    for rank, manifest in enumerate(
        ({**MANIFEST, "rank": 0}, {**MANIFEST, "rank": 1}, {**MANIFEST, "rank": "x"})
    ):
        folder = tmp_path / "recording" / f"rank{rank}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        for part, rows in (
            ("steps", [STEP, {**STEP, "peak_allocated": "x"}]),
            ("batches", batches),
        ):
            (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["analyze", "recording", "--quiet"])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert [row["rank"] for row in report["ranks"]] == [0, 1]
    assert "rank2 is left out" in report["warnings"][0]


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

CALL = "torch.cuda.reset_peak_memory_stats()"
SOURCE = f"import torch\ndef step():\n    {CALL}\n    return 1\n"


def report_with(**edit):
    """A report with one safe edit."""
    site = Site(edit.pop("file", "a.py"), 3, "step", CALL)
    wanted = {
        "action": "drop_statement",
        "call": "reset_peak_memory_stats",
        "safe": True,
        "reason": "r",
        **edit,
    }
    finding = Finding(
        site,
        "m",
        code="SYNC009",
        name="n",
        key="k",
        severity=Severity.NOTE,
        remedy=Remedy("t", (Edit(site, **wanted),)),
    )
    run = Run(
        target="t",
        steps=1,
        warmup=0,
        world_size=1,
        device="cpu",
        outcome="completed",
        error=None,
        step_us=None,
        peak_bytes=PeakBytes(None, None),
        torch="",
        python="",
        recorded_at="",
    )
    report = Report(
        run=run,
        verdicts=(),
        findings=(finding,),
        warnings=(),
        tool={"name": "x", "version": "1"},
        environment={},
        method=(),
    )
    return Json().render(report)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one file, and one outside that two links lead to."""
    (tmp_path / "outside.py").write_text(SOURCE)
    home = tmp_path / "home"
    home.mkdir()
    (home / "a.py").write_text(SOURCE)
    (home / "link.py").symlink_to(tmp_path / "outside.py")
    (home / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(home)
    return home


def fix(project, content):
    (project / "report.json").write_bytes(content)
    return CliRunner().invoke(main, ["fix", "report.json", "--apply", "--unsafe"])


def test_an_honest_report_patches(project):
    assert fix(project, report_with()).exit_code == 0
    assert CALL not in (project / "a.py").read_text()


@pytest.mark.parametrize(
    "file",
    [
        "{root}/outside.py",
        "../outside.py",
        "b/../../outside.py",
        "link.py",
        "folder/outside.py",
        "/proc/self/mem",
        "x" * 5000,
        "a\0.py",
    ],
)
def test_nothing_outside_the_project_is_patched(project, file):
    result = fix(project, report_with(file=file.format(root=project.parent)))
    assert isinstance(result.exception, (SystemExit, type(None))) and result.exit_code in (0, 2)
    assert (project.parent / "outside.py").read_text() == SOURCE
    assert (project / "a.py").read_text() == SOURCE


@pytest.mark.parametrize(
    "edit",
    [
        {"action": "set_keyword", "keyword": "device", "value": "__import__('os').system('true')"},
        {"action": "set_keyword", "keyword": "device", "value": "'text'"},
        {"action": "rename_call", "value": "system('true')"},
        {"action": "rename_call", "value": "f(g())"},
    ],
)
def test_code_that_no_rule_would_write_is_not_written(project, edit):
    result = fix(project, report_with(**edit))
    assert result.exit_code == 2 and "is not what a rule would write" in result.output
    assert (project / "a.py").read_text() == SOURCE


@pytest.mark.parametrize(
    "edit",
    [
        {"action": "throttle", "value": "2 or evil()"},
        {"action": "insert_before", "value": "os.system('true')"},
        {"action": "insert_before", "value": "evil().unscale_(x)"},
        {"action": "insert_before", "value": "s.unscale_(x); evil()"},
        {"action": "insert_after_imports", "value": "torch.load('x')"},
        {"action": "insert_after_imports", "value": "torch.set_float32_matmul_precision(evil())"},
        {"action": "modernize_amp", "call": "reset_peak_memory_stats", "value": "evil"},
        {"action": "make_on_device", "call": "reset_peak_memory_stats", "value": "evil"},
        {"action": "set_constant", "keyword": "x", "value": "evil()"},
        {"action": "set_value", "keyword": '["x"]', "value": "1"},
    ],
)
def test_what_a_patch_inserts_is_never_what_a_stranger_wrote(project, edit):
    assert fix(project, report_with(**edit)).exit_code == 2
    assert (project / "a.py").read_text() == SOURCE


@pytest.mark.parametrize(
    "value",
    [
        "x; rm -rf ~",
        "$(evil)",
        "`evil`",
        "a:1>b",
        "a:1\nevil",
        'a:1" evil "',
        "a:1|evil",
        "a:1 evil",
    ],
)
def test_a_shell_script_takes_settings_only(project, value):
    assert script_with(project, value) == script_with(project, "a:1")


def script_with(project, value):
    """A script that sets the allocator's variable to ``a:1``, after a report that wants it to be
    ``value``.
    """
    script = project / "run.sh"
    script.write_text("#\n#\nexport PYTORCH_CUDA_ALLOC_CONF=a:1\n")
    report = report_with(
        file="run.sh", action="set_value", call="", keyword="PYTORCH_CUDA_ALLOC_CONF", value=value
    )
    report = report.replace(json.dumps(CALL).encode(), b'""').replace(b'"SYNC009"', b'"MEM009"')
    assert fix(project, report).exit_code == (0 if value.startswith("expandable") else 2)
    return script.read_text()


def test_an_honest_setting_is_written(project):
    honest = "expandable_segments:True"
    assert script_with(project, honest).endswith(f"=a:1,{honest}\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        DEEP,
        b'{"schema": "\xff"}',
        report_with().replace(b'"edits": [', b'"edits": [5,'),
    ],
)
def test_what_is_no_report_is_one_sentence(project, content):
    one_sentence(fix(project, content))


def test_a_folder_that_cannot_be_read_is_one_sentence(project):
    os.mkdir("report.json")
    one_sentence(CliRunner().invoke(main, ["fix", "report.json"]))
