"""Mistakes at the command line: one plain sentence, the way out, exit code 2, no traceback."""

import os
import shlex
import sys

import pytest
from click.testing import CliRunner

from auditor.cli.main import main

TRAIN = "import torch\nnumber = 3\nclass Trainer: pass\ndef step(): pass\ndef wants(batch): pass\n"

REPLIES = {
    "run": "say what to run: package.module:callable",
    "run train": "did you mean train.py, or train:step?",
    "run trian.py": "did you mean 'train.py'?",
    "run train.step": "for example: audit run train:step",
    "run train:step()": "leave out the call: audit run train:step",
    "run train.py::step": "audit run train.py:step",
    "run train.py:": "for example: audit run train.py:step",
    "run :step": "the name of a callable must follow the colon",
    "run .": "name the program in it",
    "run empty": "empty is a folder, not a target",
    "run pkg": "audit run -m pkg runs a package",
    "run tool": "audit run -m tool",
    "run done": "audit analyze done judges a recording",
    "run nb.ipynb": "nb.ipynb is a notebook, not Python source: jupyter "
    "nbconvert --to script nb.ipynb writes",
    "run sub/nb.ipynb:step": "then: audit run sub/nb.py",
    "run notes.txt": "notes.txt is a file, but not Python source",
    "run done/report.html": "audit view shows the folder of a report",
    "run x.json": "audit analyze judges a trace or a snapshot",
    "run https://example.org/train.py": "is an address on the web",
    "run ''": "'' is not a target",
    "run python train.py": "leave out python: audit run train.py",
    "run train.py --data foo": "put `--` before the program's arguments: audit run "
    "train.py -- --data foo",
    "run train.py --steps 9 --data=foo 3": "audit run train.py --steps 9 -- --data=foo 3",
    "run train.py --step 50": "--step is no option of audit run (did you mean --steps?)",
    "run --data foo train.py": "put `--` before the program's arguments: audit run TARGET "
    "-- --data ...",
    "run train:step --steps 0": "0 is not a whole number from 1 up",
    "run train:step --steps -5": "-5 is not a whole number from 1 up",
    "run train:step --steps ten": "ten is not a whole number from 1 up",
    "run train:step --steps 1e3": "1e3 is not a whole number from 1 up",
    "run train:step --warmup -1": "-1 is not a whole number from 0 up",
    "run train:step --nproc 0": "0 is not a whole number from 1 to 64",
    "run train:step --device gpu": "a GPU is called cuda here",
    "run train:step --device cuda:1": "CUDA_VISIBLE_DEVICES=1 and --device cuda",
    "run train:step --device tpu": "'tpu' is not one of 'auto', 'cuda', 'cpu', 'rehearse'",
    "run train:step --format "
    "html": "the page is always written, as report.html in the folder of --out",
    "run train:step --format yaml": "'yaml' is not one of terminal, json, sarif",
    "run train:step --format out.sarif": "write it as sarif=out.sarif",
    "run train:step --format json=": "names no file; leave out the = to print it",
    "run train:step --format json=empty": "name a file in it: json=empty/audit.json",
    "run train:step --format json=notes.txt/x": "notes.txt is a file; it must be a folder",
    "run train:step --out notes.txt": "--out: notes.txt is a file; it must be a folder",
    "run train:step --out notes.txt/x": "--out: notes.txt is a file; it must be a folder",
    "run train:step --out done": "done already holds a recording",
    "run train:step --fail-on all": "'all' is not one of 'error', 'warning', 'note', 'never'",
    "run train:step --select SYNC01": "did you mean SYNC001?",
    "run train:step --select SYNC,foo": "'FOO' is neither a rule code nor a family",
    "run train:step --select SYNK": "did you mean SYNC?",
    "run train:step --select SYNC --ignore "
    "SYNC": "no rule is left to run: --select SYNC without SYNC",
    "run train:step --memory-limit 8gigs": "write it as 8GiB, 800MB or a number of bytes",
    "run train:step --memory-limit 0": "the limit must be at least one byte",
    "run train:step --memory-limit 8GiB --device cpu": "has no effect with --device cpu",
    "run train:step --timeout 0": "0 is not a time above zero; write seconds, or 90s, 5m, 1h",
    "run train:step --timeout 5x": "5x is not a time above zero",
    "run train:step --budget -1": "-1 is not a time; write seconds",
    "run train:step --nproc 2 --device rehearse": "leave out --nproc, or use --device cpu",
    "run train:step --nproc 2 --device null": "leave out --nproc, or use --device cpu",
    "run train:step --world 1": "1 is not a whole number from 2 to 1048576",
    "run train:step --world 8": "torch-null-device is not installed pip install ./nulldevice",
    "run train:step --world 8 --ranks 8": "the ranks of --world 8 are 0 to 7",
    "run train:step --world 8 --ranks x": "write numbers, as in --ranks 0,7",
    "run train:step --ranks 0,1": "--ranks needs --world",
    "run train:step --world 8 --nproc 2": "--nproc does not apply",
    "run train:step --world 8 --verify": "--verify does not apply",
    "run train:step --world 8 --device cpu": "--device cpu does not apply",
    "run train:step --device cpu --gpu T4": "--device cpu simulates no GPU",
    "run train:step --gpu T5": "no GPU model 'T5' is known known are H100, H200, B200",
    "run train:step --device null": "torch-null-device is not installed pip install ./nulldevice",
    "run train:step --verify=yes": "does not take a value",
    "run -m train.py": "did you mean audit run -m train?",
    "run -m pkg/mod": "did you mean audit run -m pkg.mod?",
    "run -m train:step": "leave out -m: audit run train:step",
    "run -m": "say what to run",
    "drill train:step": "say which fault to plant, and at which step: --inject nan@12",
    "drill train:step --inject nan": "write nan@12, inf@12, oom@12 or kill@12",
    "drill train:step --inject boom@3": "'boom@3' is not a fault",
    "drill train:step --inject nan@12 --steps 5": "--steps 5 ends before step 12",
    "drill train.py --inject nan@3 --lr 3": "audit drill train.py --inject nan@3 -- --lr 3",
    "reproduce": "say what to run",
    "reproduce train:step --steps 0": "0 is not a whole number",
    "reproduce train.py --lr 3": "audit reproduce train.py -- --lr 3",
    "reproduce nb.ipynb": "is a notebook",
    "plan": "say what to run",
    "plan train:step --gpu T5": "no GPU model 'T5' is known known are H100, H200, B200",
    "plan train:step --world 1": "1 is not a whole number from 2 to 1048576",
    "plan train:step --device null": "torch-null-device is not installed pip install ./nulldevice",
    "plan train:step --budget 0": "0 is not a time above zero",
    "plan train:step --out empty": "--out empty is a folder; it must be a file",
    "plan train.py --lr 3": "audit plan train.py -- --lr 3",
    "plan nb.ipynb": "is a notebook",
    "drill nb.ipynb --inject nan@3": "is a notebook",
    "analyze": "give the folder that audit run wrote",
    "analyze done/reprot.html": "did you mean done/report.html?",
    "analyze nowhere": "nowhere does not exist",
    "analyze empty.json": "empty.json is empty: what wrote it did not finish give the folder",
    "analyze empty.pickle": "empty.pickle is empty: what wrote it did not finish",
    "analyze text.pickle": "text.pickle is not a pickle, although its name says so",
    "analyze x.json": 'x.json holds no "traceEvents"',
    "analyze done/report.html": "give its folder, which holds one: audit analyze done",
    "analyze notes.txt": "give the folder that audit run wrote, a trace of torch.profiler",
    "analyze train.py": "audit run train.py runs it",
    "analyze model.pt": "audit checkpoint model.pt",
    "analyze empty": "empty holds no recording",
    "analyze x.json notes.txt --out o": "analyze them one by one",
    "analyze x.json --steps 5": "--steps is no option of audit analyze; it has",
    "fix": "give report.json, or the folder that audit run wrote",
    "fix nowhere": "nowhere does not exist give report.json or the folder that audit run wrote",
    "fix done/reprot.html": "did you mean done/report.html?",
    "fix pipe": "pipe is neither a file nor a folder give report.json",
    "fix empty.json": "empty.json is empty: what wrote it did not finish give report.json",
    "fix x.json": "this is not a report: it names no schema",
    "fix done/report.html": "give report.json beside it: done/report.json",
    "fix empty": "empty holds no report.json",
    "fix done": "audit analyze done writes it",
    "fix x.json --aply": "--aply is no option of audit fix (did you mean --apply?)",
    "verify notes.txt": "this is not a report: it is not JSON",
    "verify empty": "empty holds no report.json",
    "compare": "give two: audit compare BEFORE AFTER",
    "compare x.json": "there is nothing to compare it with",
    "compare x.json x.json": "this is not a report",
    "compare nowhere x.json": "nowhere does not exist give report.json, the folder of a run",
    "compare empty.json x.json": "empty.json is empty: what wrote it did not finish",
    "compare empty x.json": "empty holds no report and no recording",
    "compare x.json x.json --max-regression five": "write it as 5%",
    "checkpoint": "give files of torch.save or safetensors",
    "checkpoint empty": "empty holds no checkpoint",
    "checkpoint nowhere.pt": "nowhere.pt: it does not exist",
    "checkpoint notes.txt": "it is neither",
    "explain": "say which rule: audit explain SYNC001",
    "explain SYNC01": "did you mean SYNC001?",
    "explain sync1": "did you mean SYNC001?",
    "explain SYNK001": "did you mean SYNC001?",
    "explain foo": "audit rules lists them all",
    "explain nope": "there is no rule 'nope' audit rules lists them all",
    "rules FOO": "'FOO' is neither a rule code nor a family",
    "rules --format html": "'html' is not one of 'terminal', 'json', 'markdown'",
    "view": "give the folder that audit run wrote: audit view audits",
    "view nowhere": "nowhere does not exist",
    "view empty": "empty holds no run of audit (no report.json)",
    "view notes.txt": "notes.txt is a file, not a folder",
    "view done/report.html": "give its folder: audit view done",
    "view empty --port 99999": "99999 is not a whole number from 0 to 65535",
    "train.py": "did you mean audit run train.py?",
    "train:step --steps 3": "did you mean audit run train:step --steps 3?",
    "x.json": "did you mean audit analyze x.json?",
    "rnu train.py": "there is no command 'rnu': did you mean run?",
    "zzz": "it is one of run, analyze, fix",
    "help run": "did you mean audit run --help?",
    "--verison": "Did you mean '--version'?",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("mistakes")
    for name in ("empty", "pkg", "tool", "done/recording", "sub"):
        (made / name).mkdir(parents=True)
    for name in "pkg/__init__.py tool/__init__.py tool/__main__.py launch.sh empty.json".split():
        (made / name).touch()
    (made / "train.py").write_text(TRAIN)
    (made / "train_script").write_text(TRAIN)
    (made / "notes.txt").write_text("hello")
    (made / "x.json").write_text("{}")
    os.mkfifo(made / "pipe")
    (made / "empty.pickle").touch()
    (made / "text.pickle").write_text("hello")
    (made / "model.pt").write_bytes(b"PK")
    (made / "done" / "report.html").write_text("<!doctype html><html></html>")
    manifest = '{"schema": "audit-recording/1", "outcome": "completed", "passes": []}'
    (made / "done" / "recording" / "manifest.json").write_text(manifest)
    return made


@pytest.mark.parametrize("words", REPLIES)
def test_the_reply_to_a_mistake(folder, monkeypatch, words):
    monkeypatch.setitem(sys.modules, "torch_null_device", None)  # as if it were not installed
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    done = CliRunner().invoke(main, shlex.split(words), prog_name="audit")
    assert done.exit_code == 2, done.output
    assert REPLIES[words] in " ".join(done.stderr.split())
    assert "Traceback" not in done.output and done.stdout == ""
    assert "fault of the auditor" not in done.stderr
    assert sorted(folder.rglob("*")) == before, "nothing is left behind"


SHOWN = {
    "explain SYN": ("SYNC001", "SYNC009"),
    "explain sync": ("SYNC001", "audit explain SYNC001 shows the manual page of that rule."),
    "explain scalar-read-every-step": ("# SYNC001:",),
    "rules SYNC,MEM005": ("SYNC001", "MEM005"),
}


@pytest.mark.parametrize("words", SHOWN)
def test_what_is_shown_instead_of_a_refusal(words):
    done = CliRunner().invoke(main, shlex.split(words), prog_name="audit")
    assert done.exit_code == 0, done.output
    assert all(each in done.stdout for each in SHOWN[words])
    assert "DATA007" not in done.stdout


@pytest.mark.parametrize(
    ("word", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("0.5", 0.5), (".5m", 30)],
)
def test_times_may_have_units(word, seconds):
    from auditor.cli.parameter_types import Seconds

    assert Seconds().convert(word, None, None) == seconds


def test_a_fault_of_our_own_is_no_finding(monkeypatch):
    """Exit code 1 would say that a finding reached --fail-on."""
    from auditor.cli import analyze

    monkeypatch.setattr(analyze, "analyze", lambda **options: {}["x"])
    done = CliRunner().invoke(main, ["analyze", "x"])
    assert done.exit_code == 2
    first = "audit: this is a fault of the auditor's own: KeyError: 'x'"
    assert done.stderr.splitlines()[0] == first


SETTINGS = ("select = 3", "rules = 3", "per-file-ignores = 3", "fail-on = ['x']", "selct = []")


@pytest.mark.parametrize("text", [*SETTINGS, "[tool.audit.rules]\nSYNC001 = 3"])
def test_settings_of_another_shape_are_one_sentence(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    head = "" if text.startswith("[") else "[tool.audit]\n"
    (tmp_path / "pyproject.toml").write_text(f"{head}{text}\n")
    (tmp_path / "t.json").write_text('{"traceEvents": []}')
    done = CliRunner().invoke(main, ["analyze", "t.json"])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"audit: {tmp_path / 'pyproject.toml'}: ")
