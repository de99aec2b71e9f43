"""Every command on files whose texts attack: no terminal is steered, no CI system obeys."""

import json
import pickle
import re
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from auditor.reports import as_json
from click.testing import CliRunner

from auditor.allocator import CachingAllocator, OutOfMemory
from auditor.cli.main import main
from auditor.recordings.folder import SCHEMA, write_manifest

ATTACK = (
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J left\u202eright\u2066 zero\u200b\r\n::error "
    "file=a::forged\n"
    "  ::set-output name=a::b\n##vso[task.setvariable]x\n##[error]y\n##teamcity[z] audit: forged\n"
    "<script>alert(1)</script> ```\n# heading\n]]> &x; [link](javascript:x) | a | b\n"
)
"""All in one: escapes, bidi, line feeds, commands of CI systems, HTML, markdown, XML."""

NAME = "a\x1b[2J\u202e\n::error::b"
"""Attacks as the name of a file."""

COMMAND = re.compile(r"^\s*::[\w-]+[^\n]*::", re.MULTILINE)
MARK = re.compile(r"##(vso|teamcity)?\[")


def require_harmless(done, *, commands=False):
    for stream in (done.stdout, done.stderr):
        steering = {char for char in stream if not (char.isprintable() or char in "\n\t")}
        assert not steering, f"{sorted(map(ascii, steering))} in {ascii(stream)[:2000]}"
        assert not MARK.search(stream), ascii(stream)
        assert commands or not COMMAND.search(stream), ascii(stream)
    assert "Traceback" not in done.output and done.exit_code in (0, 1, 2, 3), done.output


def _recording(folder):
    said = {
        "schema": SCHEMA,
        "target": ATTACK,
        "argv": [ATTACK],
        "cwd": str(folder.parent),
        "sources": {},
        "outcome": "raised",
        "device": "cpu",
        "passes": [{"name": "quiet", "steps": 3}, {"name": ATTACK, "steps": 1}],
        "error": dict.fromkeys(("type", "message", "traceback", "file", "function"), ATTACK)
        | {"line": 3},
        "warnings": [ATTACK],
        "environment": {"torch": ATTACK, ATTACK: ATTACK, "python": ATTACK},
        "masked_arguments": [ATTACK],
        "withheld": [ATTACK],
        "recorded_at": ATTACK,
    }
    write_manifest(folder, said)
    for at in range(3):
        row = {"pass": "quiet", "step": at, "us": 1000.0 + at, "start_us": at * 2000.0}
        with (folder / "steps.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
    return folder


def _trace(path):
    from tests.timeline import kineto

    events = []
    for step in range(6):
        start = step * 1000.0
        events += [
            kineto.note(f"ProfilerStep#{step}", start, 900.0),
            kineto.op(ATTACK, start + 10, 300.0),
            kineto.call("cudaLaunchKernel", start + 20, 5.0, step + 1),
            kineto.kernel(ATTACK, start + 400, 100.0, step + 1),
        ]
    path.write_text(kineto.text(events))
    return path


def _snapshot(path):
    frames = [{"name": ATTACK, "filename": ATTACK, "line": 3}]
    allocator = CachingAllocator(1 << 30)
    allocator.malloc(2 << 20, frames=frames)
    with suppress(OutOfMemory):
        allocator.malloc(4 << 30, frames=frames)
    attacked = {"allocator_settings": {ATTACK: ATTACK}}
    path.write_bytes(pickle.dumps(allocator.snapshot() | attacked))
    return path


def _checkpoint(path):
    import torch

    torch.save({ATTACK: torch.tensor([float("nan")]), "optimizer": {ATTACK: ATTACK}}, path)
    return path


class _Foreign:
    def __reduce__(self):
        return (_Foreign, ())


def _foreign(path):
    """A checkpoint whose global has an attack for its name."""
    name = ATTACK.replace("\n", " ").encode("utf-8", "surrogatepass")
    length = min(len(name), 200)
    short = b"\x8c" + bytes([length]) + name.decode()[:150].encode()[:200].ljust(length)[:200]
    body = b"\x80\x04" + b"\x8c\x05posix" + short + b"\x93)R."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", body)
        archive.writestr("a/version", "3\n")
    return path


def _report(folder):
    from tests.reports.golden_attack import attack_report

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(as_json.Json().render(attack_report()))
    return folder


def _forged(folder):
    """A whole report whose every text is the attack."""
    _report(folder)
    file = folder / "report.json"
    said = json.loads(file.read_text())
    keep = (
        "schema outcome severity status basis seen_on action kind tone training axis unit".split()
    )

    def attacked(value, key=""):
        if isinstance(value, dict):
            return {name: attacked(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [attacked(each, key) for each in value[:3]]
        return ATTACK if isinstance(value, str) and key not in keep else value

    said["findings"] = attacked(said["findings"])
    said["run"] = attacked(said["run"])
    said["warnings"] = [ATTACK]
    said["caveats"] = [ATTACK]
    file.write_text(json.dumps(said))
    return folder


FILES: dict[str, Callable[[Path], Path]] = {
    "recording": lambda root: _recording(root / NAME / "recording"),
    "trace": lambda root: _trace(root / f"{NAME}.json"),
    "snapshot": lambda root: _snapshot(root / f"{NAME}.pickle"),
    "checkpoint": lambda root: _checkpoint(root / f"{NAME}.pt"),
    "foreign": lambda root: _foreign(root / f"{NAME}.pt"),
    "report": lambda root: _report(root / NAME / "r"),
    "forged": lambda root: _forged(root / NAME / "f"),
    "source": lambda root: _program(root / f"{NAME}.py"),
    "none": lambda root: root / NAME / "nothing",
    "junk": lambda root: _junk(root / f"{NAME}.json"),
}


def _program(path):
    path.write_text(f"import torch  # {ATTACK!r}\ntorch.compile(m)\n")
    return path


def _junk(path):
    path.write_text(ATTACK)
    return path


FORMATS = ("terminal", "json", "sarif", "junit", "github", "codequality", "markdown", "agent")


COMMANDS = [
    ("analyze", "recording trace snapshot", [f"{{}} --out out --format {form}" for form in FORMATS]),
    ("analyze", "report junk none", ["{} --out out"]),
    ("fix", "report forged junk none", ["{}", "{} --apply --unsafe"]),
    ("verify", "report forged recording junk none", ["{} --budget 0"]),
    ("compare", "report forged recording junk none", ["{} {}", "{} {} --json"]),
    ("checkpoint", "checkpoint foreign junk none", ["{}", "{} --json", "{} --out out", "{} --config {}"]),
    ("view", "none junk", ["{} --no-browser"]),
    *((command, "none", ["{}"]) for command in ("run", "rules", "explain", "reproduce")),
    ("drill", "none", ["{} --inject nan@3"]),
    ("agents", "none", ["--skill"]),
    ("check", "source none", ["{}", "{} --format sarif"]),
]  # fmt: skip
WALKS = [
    (name, kind, each) for name, kinds, said in COMMANDS for kind in kinds.split() for each in said
]


@pytest.mark.parametrize(
    ("command", "kind", "words"), WALKS, ids=[" ".join(each) for each in WALKS]
)
def test_nothing_steers_the_terminal(tmp_path, monkeypatch, command, kind, words):
    if kind in ("recording", "report", "forged"):
        (tmp_path / NAME).mkdir()
    path = FILES[kind](tmp_path)
    monkeypatch.chdir(tmp_path)
    given = [word.replace("{}", str(path.relative_to(tmp_path))) for word in words.split()]
    done = CliRunner().invoke(main, [command, *given])
    require_harmless(done, commands="github" in words)


def test_every_command_is_walked():
    assert {command for command, _, _ in WALKS} >= set(main.commands) - {"plan", "doctor", "mcp"}


def test_a_forged_verdict_line_is_told_from_a_true_one(tmp_path, monkeypatch):
    """A name with a line feed cannot add a line that says that another checkpoint is good."""
    monkeypatch.chdir(tmp_path)
    bad = tmp_path / "bad.pt\nother.pt  good  zip, 1 tensors"
    _checkpoint(bad)
    done = CliRunner().invoke(main, ["checkpoint", bad.name])
    assert not any(line.startswith("other.pt") for line in done.output.splitlines())
