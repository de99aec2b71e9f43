"""What keeps a recording whole: odd errors, a full disk, a fork, files closed by the target."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from auditor.capture.child import words
from auditor.capture.instruments.stack_sampler import KeptOpen
from auditor.capture.process import ChildSignal, ProgressPipe, undisturbed
from auditor.cli import out_folder
from auditor.cli.main import main as command
from auditor.cli.usage import AuditGroup, Ending
from auditor.errors import WORDS_LIMIT, AuditProblem, fault, plain, traceback_of, words_of
from auditor.judging import engine
from auditor.judging.engine import INTERRUPTED
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter
from auditor.recordings.writer import encoded, on_disk, store_sources
from auditor.runs import finalize, leftover_processes
from auditor.runs.plan import Copied, Plan
from auditor.runs.project_copy import NoCopy, sheltered
from tests.judging.test_linear import recording

# -- errors that cannot be described ---------------------------------------------------------------


class Text(str):  # noqa: SLOT000
    def __str__(self):
        return self

    def split(self, *args):
        raise TypeError

    def partition(self, *args):
        raise TypeError


def odd(answer):
    return type("Odd", (Exception,), {"__str__": answer})("x")


def raises(self):
    raise ValueError


def leaves(self):
    sys.exit(3)


NO_MODULE = type("Odd", (Exception,), {"__module__": None})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("plain"), "plain"),
        (ValueError(Text("weird")), "weird"),
        (odd(raises), "(it has no message: its __str__ raised ValueError)"),
        (odd(leaves), "(it has no message: its __str__ raised SystemExit)"),
        (odd(lambda self: 3), "(it has no message: its __str__ raised TypeError)"),
        (ValueError("bad \udcff name"), "bad \\udcff name"),
        (NO_MODULE("lost"), "lost"),
    ],
)
def test_any_error_is_described(error, said):
    assert words_of(error) == said and type(words_of(error)) is str
    assert fault(error).endswith(said[:100])
    try:
        raise error
    except Exception as caught:
        told = traceback_of(caught)
    assert "test_survival" in told and type(told) is str
    told.encode()


def test_a_huge_message_is_cut_and_says_so():
    assert words_of(ValueError("x" * WORDS_LIMIT)) == "x" * WORDS_LIMIT
    cut = words_of(ValueError("x" * (WORDS_LIMIT + 1)))
    assert cut == "x" * WORDS_LIMIT + " ... (20,001 characters)"
    told = words(ValueError("x" * 5_000_000), lambda file: True)
    assert len(told["message"]) < 21_000 and len(told["traceback"]) < 201_000


# -- the writer ------------------------------------------------------------------------------------


def test_text_that_no_encoding_takes_is_written_as_escapes(tmp_path):
    assert json.loads(encoded({"a": "caf\udce9", "n": [1, Text("w")]})) == {
        "a": "caf\\udce9",
        "n": [1, "w"],
    }
    writer = RecordingWriter(tmp_path)
    writer.site("/caf\udce9/x.py", 1, "f")
    writer.save({"schema": SCHEMA, "cwd": "/caf\udce9", "outcome": "completed"})
    writer.close()
    recording = Recording(tmp_path)
    assert recording.site(0).file == "x.py"


def test_a_name_that_is_not_utf8_is_found_again(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "x.py").write_text("print()")
    told = plain(str(folder / "x.py"))
    assert "\\udce9" in told and on_disk(told) == str(folder / "x.py")
    assert on_disk("/no/\\udxx") == "/no/\\udxx"
    stored = store_sources(tmp_path / "kept", plain(str(folder)), iter([told]))
    assert (tmp_path / "kept" / "sources" / stored["x.py"]).read_text() == "print()"


def test_a_full_disk_ends_the_writing_and_leaves_whole_rows(tmp_path):
    writer = RecordingWriter(tmp_path)
    writer.add_fields("looks", {"us": 1})
    writer.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30, hard))
    try:
        writer.add_fields("looks", {"us": 2, "long": "x" * 100})
        writer.flush()
        writer.add_fields("looks", {"us": 3})
        writer.flush()
        writer.save({"schema": SCHEMA, "cwd": "", "outcome": "killed"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert writer.lost == f"{tmp_path} cannot be written: File too large"
    writer.close()
    assert not (tmp_path / "manifest.json.new").exists()
    read = Recording(tmp_path, {"schema": SCHEMA})
    assert [row["us"] for row in read.rows("looks")] == [1]


def test_what_could_not_be_written_is_nobodys_failure_but_the_disks():
    for before, after in (
        ("completed", "interrupted"),
        ("killed", "interrupted"),
        ("raised", "raised"),
        ("oom", "oom"),
    ):
        manifest = {"outcome": before, "error": {"type": "ValueError", "step": 3}}
        finalize._settle_unwritten(manifest, "no room")
        assert manifest["outcome"] == after and manifest["unwritten"] == "no room"
        assert manifest["error"]["step"] == 3 and (manifest["error"]["type"] == "ValueError") == (
            after == before
        )


def test_a_disk_that_is_full_as_the_run_is_sealed_keeps_the_manifest_in_memory(
    tmp_path, monkeypatch
):
    writer = RecordingWriter(tmp_path)
    writer.add_fields("steps", {"pass": "quiet", "step": 0, "us": 1.0})
    writer.close()
    writer.save(
        {
            "schema": SCHEMA,
            "cwd": str(tmp_path),
            "outcome": "completed",
            "finished": True,
            "passes": [],
        }
    )

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(finalize, "write_manifest", full)
    plan = Plan("t:s", (), 1, 0, "cpu", str(tmp_path), ())
    ended = SimpleNamespace(unwritten="", output=b"")
    manifest = finalize.seal(plan, 0, ended).manifest
    assert manifest["unwritten"] == f"{tmp_path} cannot be written: No space left on device"
    assert manifest["passes"] == [{"name": "quiet", "steps": 1}]


def test_a_fork_writes_nothing(tmp_path):
    reading, writing = os.pipe()
    writer, pipe = RecordingWriter(tmp_path), ProgressPipe(writing)
    writer.add_fields("steps", {"us": 1})
    if (child := os.fork()) == 0:
        writer.add_fields("steps", {"us": 2})
        writer.flush()
        writer.save({"schema": "other"})
        pipe("quiet", 1, 1)
        os._exit(0 if writer.forked else 1)
    assert os.waitpid(child, 0)[1] == 0 and not writer.forked
    writer.close()
    pipe("loud", 1, 1)
    os.close(writing)
    assert (tmp_path / "steps.jsonl").read_bytes() == b'{"us":1}\n'
    assert not (tmp_path / "manifest.json").exists()
    with os.fdopen(reading) as told:
        assert told.read() == "loud 1 1\n"


def test_files_that_the_target_closed_are_opened_again_and_its_own_left_alone(tmp_path):
    writer = RecordingWriter(tmp_path)
    writer.add_fields("steps", {"us": 1})
    writer.flush()
    reading, writing = os.pipe()
    pipe, kept = ProgressPipe(writing), KeptOpen("/proc/self/statm")
    numbers = [writer._files["steps"]._number, writing, kept._number]
    assert kept.words()
    for number in numbers:
        os.close(number)
    theirs = os.open(tmp_path / "theirs", os.O_CREAT | os.O_RDWR)
    taken = [os.dup2(theirs, number) for number in numbers]
    writer.add_fields("steps", {"us": 2})
    writer.close()
    pipe("quiet", 1, 1)
    assert kept.words() == []
    kept.close()
    for number in taken:
        os.fstat(number)  # still open
        os.close(number) if number != theirs else None
    os.close(theirs) if theirs not in taken else os.close(theirs)
    os.close(reading)
    assert (tmp_path / "theirs").read_bytes() == b""
    assert (tmp_path / "steps.jsonl").read_bytes() == b'{"us":1}\n{"us":2}\n'


def test_a_umask_of_the_targets_does_not_lock_us_out(tmp_path):
    writer = RecordingWriter(tmp_path)
    before = os.umask(0o777)
    try:
        writer.add_fields("steps", {"us": 1})
        writer.flush()
        writer.save({"schema": SCHEMA})
    finally:
        os.umask(before)
    for name in ("steps.jsonl", "manifest.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~before
    writer.close()


# -- signals ---------------------------------------------------------------------------------------


def test_a_handler_that_raises_does_not_while_we_write():
    def handler(number, frame):
        raise RuntimeError("worker died")

    before = signal.signal(signal.SIGCHLD, handler)
    try:
        with undisturbed():
            os.kill(os.getpid(), signal.SIGCHLD)
            time.sleep(0)
        assert signal.getsignal(signal.SIGCHLD) is handler
        with pytest.raises(RuntimeError, match="worker died"):
            os.kill(os.getpid(), signal.SIGCHLD)
            time.sleep(0.1)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_torchs_handler_raises_in_the_program_and_in_its_loader_but_not_in_our_code():
    heard = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: heard.append(number))
    theirs, ours = signal.getsignal(signal.SIGCHLD), ChildSignal()

    def called_from(*files):
        frame = None
        for file in reversed(files):
            frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=file), f_back=frame)
        heard.clear()
        signal.getsignal(signal.SIGCHLD)(signal.SIGCHLD, frame)
        return bool(heard)

    try:
        ours.look()
        own, torch_file = finalize.__file__, "/env/site-packages/torch/{}"
        assert called_from("/home/me/train.py", own)
        assert called_from(torch_file.format("utils/data/dataloader.py"), own, "/home/me/train.py")
        assert called_from(torch_file.format("nn/module.py"), "/home/me/train.py", own)
        assert not called_from(own, "/home/me/train.py")
        assert not called_from(torch_file.format("profiler/profiler.py"), own, "/home/me/train.py")
        ours.stop()
        assert signal.getsignal(signal.SIGCHLD) is theirs
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_two_audits_of_one_process_do_not_call_each_other_in_a_circle():
    heard = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: heard.append(number))
    theirs, one, other = signal.getsignal(signal.SIGCHLD), ChildSignal(), ChildSignal()
    try:
        for each in (one, other, one, other):
            each.look()
            heard.clear()
            signal.getsignal(signal.SIGCHLD)(signal.SIGCHLD, None)
            assert heard == [signal.SIGCHLD]
        one.stop()
        other.stop()
        assert signal.getsignal(signal.SIGCHLD) is theirs
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_first_signal_waits_for_the_report_and_the_second_does_not(capsys):
    ending, before = Ending(), signal.getsignal(signal.SIGINT)
    with ending.after_the_report():
        os.kill(os.getpid(), signal.SIGINT)
        assert ending.asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
    assert signal.getsignal(signal.SIGINT) is before
    assert "the report is finished first" in capsys.readouterr().err


def test_ctrl_c_while_judging_reports_what_is_judged(tmp_path, monkeypatch, capsys):
    """Rules that were not asked are skipped for that reason; the exit code is 130."""
    asked, ask = [], engine._ask

    def slow(rule, *given):
        asked.append(rule.code)
        if len(asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return ask(rule, *given)

    monkeypatch.setattr(engine, "_ask", slow)
    made = recording(tmp_path, 2, "stopped")
    with pytest.raises(SystemExit) as ended:
        command(["analyze", str(made.folder), "--out", str(tmp_path / "out"), "--quiet"])
    assert ended.value.code == 130
    assert len(asked) == 3
    told = json.loads((tmp_path / "out" / "report.json").read_text())
    reasons = [each["reason"] for each in told["verdicts"] if each["reason"] == INTERRUPTED]
    assert len(reasons) == len(told["verdicts"]) - 3
    assert any("judging was interrupted" in each for each in told["warnings"])


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hangup_ends_a_command_as_ctrl_c_does_unless_it_is_ignored(ignored, monkeypatch):
    import click

    @click.group(cls=AuditGroup)
    def group():
        pass

    @group.command()
    def waits():
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.1)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            group.main(["waits"])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert ended.value.code == (0 if ignored else 130)


# -- the folder ------------------------------------------------------------------------------------

CLAIM = (
    "import sys; from pathlib import Path; from auditor.cli import out_folder; "
    "print(out_folder.claimed(Path(sys.argv[1])))"
)


def test_a_folder_is_claimed_by_one_process_until_it_ends(tmp_path):
    def claim(code):
        return subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        ).stdout

    assert claim(CLAIM) == "True\n"
    assert claim(CLAIM + "; import os; os.kill(os.getpid(), 9)") in ("", "True\n")
    assert out_folder.claimed(tmp_path)
    assert claim(CLAIM) == "False\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_room_is_refused_before_the_run(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(AuditProblem, match="cannot be written: File too large"):
            out_folder.make(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "out").iterdir()) == []


# -- what a target leaves behind -------------------------------------------------------------------


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid):
    for _ in range(50):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_keeper_ends_the_group_with_its_owner_and_not_when_it_is_released():
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    keeper = leftover_processes.Keeper(other.pid)
    shell = keeper._shell.pid
    keeper.release()
    assert gone(shell) and alive(other.pid)
    owner = (
        "import os, sys, time; from auditor.runs.leftover_processes import Keeper; kept = "
        "Keeper(int(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", owner, str(other.pid)], check=False)
    assert other.wait(5) == -9


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "original", "root"),
    [
        ("/t/tree/b/c/proj", "/a/b/c/proj", "/t/tree"),
        ("/t/tree/proj", "/proj", "/t/tree"),
        ("/t/tree/x", "/deep/er/x", "/t/tree"),
    ],
)
def test_files_of_a_copy_are_written_down_as_the_originals(tmp_path, folder, original, root):
    copied = Copied(folder, original, root, "/t/kept")
    assert copied.spelled(f"in {folder}/a.py") == f"in {original}/a.py"
    writer = RecordingWriter(tmp_path, copied.spelled)
    writer.add_fields("loaders", {"dataset_file": f"{folder}/a.py", "n": 1})
    assert writer.site(f"{folder}/a.py", 3, "f") == writer.site(f"{original}/a.py", 3, "f") == 0
    writer.save({"schema": SCHEMA, "cwd": folder, "outcome": "completed"})
    writer.close()
    recording = Recording(tmp_path)
    assert recording.cwd == original and recording.site(0).file == "a.py"
    assert recording.rows("loaders") == [{"dataset_file": f"{original}/a.py", "n": 1}]


def test_a_working_directory_that_is_gone_cannot_be_copied(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    plan = Plan("t:s", (), 1, 0, "cpu", str(tmp_path / "out"), ())
    with (
        pytest.raises(NoCopy, match="no copy of the working directory can be made"),
        sheltered(plan),
    ):
        pass


# -- the report comes first ------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """``audit run`` whose recording is there at once; yields what its manifest says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("def step(): pass")
    manifest = {
        "schema": SCHEMA,
        "cwd": str(tmp_path),
        "outcome": "completed",
        "device": "cpu",
        "target": "t:step",
        "passes": [],
    }

    def record(audit, *_, **__):
        plan = audit.run
        writer = RecordingWriter(Path(plan.folder))
        writer.add_fields(
            "steps", {"pass": "quiet", "step": 0, "us": 100.0, "host_us": 100.0, "start_us": 0.0}
        )
        writer.close()
        writer.save(manifest)
        return Recording(Path(plan.folder))

    monkeypatch.setattr("auditor.runs.stages.record", record)
    return manifest


def audit_run(*words):
    from auditor.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main.main(["run", "t:step", "--out", "out", "--select", "SYNC001", *words])
    return ended.value.code


def test_a_recording_that_was_cut_off_by_the_disk_is_judged_and_the_code_is_2(
    recorded, capsys, tmp_path
):
    recorded["unwritten"] = "out/recording cannot be written: No space left on device"
    assert audit_run() == 2
    assert (tmp_path / "out" / "report.html").is_file()
    assert recorded["unwritten"] in capsys.readouterr().err


def test_the_table_is_printed_where_no_file_can_be_and_nothing_recorded_is_lost(
    recorded, capsys, monkeypatch, tmp_path
):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("auditor.cli.write_results.write_whole", full)
    assert audit_run() == 2
    said = capsys.readouterr()
    assert "t:step" in said.out
    assert said.err.startswith(
        "audit: the report cannot be written to out: No space left on device\n"
    )
    assert (tmp_path / "out" / "recording" / "steps.jsonl").is_file()


def test_a_terminal_that_is_gone_costs_the_words_alone(recorded, monkeypatch, tmp_path):
    class Gone:
        encoding = "utf-8"

        def write(self, text):
            raise BrokenPipeError

        def isatty(self):
            return False

        def flush(self):
            raise BrokenPipeError

        def fileno(self):
            raise ValueError

    monkeypatch.setattr(sys, "stdout", Gone())
    monkeypatch.setattr(sys, "stderr", Gone())
    assert audit_run() == 0
    assert (tmp_path / "out" / "report.html").is_file()
