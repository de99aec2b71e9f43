"""``audit mcp`` from end to end: the SDK's own client over stdio, the server as users start it."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress

import anyio
import psutil
import pytest

pytest.importorskip("mcp")
from auditor.reports import agent
from mcp import Client, StdioServerParameters

from auditor.extensions.mcp import server
from auditor.extensions.mcp.children import Children

ENOUGH_S = 300
"""For a whole audit, on a machine that does other things."""

TRAINER = """\
import time

import torch

time.sleep(3)  # progress is told from the third second on
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step():
    batch = torch.randn(32, 64)
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    with torch.autograd.set_detect_anomaly(True):
        loss.backward(retain_graph=True)
    optimizer.step()
"""
SLEEPER = "import time\n\ndef step():\n    time.sleep(600)\n"
WRITES = {"fix"}


@pytest.fixture
def project(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    (place / "trainer.py").write_text(TRAINER)
    (place / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "secret.py").write_text("def step(): pass\n")
    (place / "link").symlink_to(tmp_path)
    return place


@asynccontextmanager
async def connected(project):
    words = ["-P", "-m", "auditor", "mcp"]
    env = {"OMP_NUM_THREADS": "1", "AUDIT_CACHE_DIR": str(project / "cache")}
    command = StdioServerParameters(command=sys.executable, args=words, cwd=project, env=env)
    async with Client(command, read_timeout_seconds=ENOUGH_S) as client:
        yield client


async def called(client, tool, *, progress=None, **given):
    """The answer's fields, and the text that a refusal has."""
    result = await client.call_tool(tool, given, progress_callback=progress)
    if result.is_error:
        return {"refused": result.content[0].text}
    answer = result.structured_content
    assert len(json.dumps(answer)) <= agent.LIMIT + 200
    return answer


def in_session(test):
    """Run the coroutine ``test(client, project)`` beside a server."""

    @functools.wraps(test)
    def run(project):
        async def whole():
            async with connected(project) as client:
                await test(client, project)

        anyio.run(whole)

    del run.__wrapped__  # pytest would ask for the client
    return run


@in_session
async def test_a_broken_trainer_is_audited_repaired_and_clean(client, project):
    lines = []

    async def progress(done, total, message):
        lines.append((done, message))

    asked = {"target": "trainer:step", "steps": 5, "select": "GRAPH002,NUM009"}
    first = await called(client, "audit", wait_s=0, **asked)
    assert (first["state"], first["exit_code"]) == ("running", None)
    beside = await called(client, "audit", wait_s=0, **asked)
    assert "is in progress" in beside["refused"]
    assert "is in progress" in (await called(client, "fix", folder="."))["refused"]
    broken = await called(client, "status", run=first["run"], wait_s=ENOUGH_S, progress=progress)
    assert (broken["state"], broken["exit_code"]) == ("done", 0)
    assert "- GRAPH002 warning trainer.py:16 | " in broken["text"]
    assert "- NUM009 warning trainer.py:15 | " in broken["text"]
    assert any("pass" in message for _, message in lines)
    assert [done for done, _ in lines] == sorted({done for done, _ in lines})

    folder = broken["folder"]
    assert (project / folder / "report.json").is_file()
    again = await called(client, "findings", folder=folder)
    assert again["text"] == broken["text"]
    some = await called(client, "diff", folder=folder, codes=["GRAPH"])
    assert "+        loss.backward()\n" in some["text"]
    assert "+    with torch.autograd" not in some["text"]
    assert (project / "trainer.py").read_text() == TRAINER
    await called(client, "fix", folder=folder, codes="GRAPH")
    await called(client, "fix", folder=folder)
    patched = (project / "trainer.py").read_text()
    assert "loss.backward()\n" in patched and "set_detect_anomaly(True)" not in patched

    repaired = await called(client, "audit", wait_s=ENOUGH_S, **asked)
    assert repaired["exit_code"] == 0
    assert not any(line.startswith("- ") for line in repaired["text"].splitlines())
    assert repaired["folder"] != folder
    both = await called(client, "compare", before=folder, after=repaired["folder"])
    assert "GRAPH002" in both["text"]


@in_session
async def test_the_tools_say_which_of_them_write(client, project):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        "audit", "findings", "explain", "diff", "fix", "verify", "compare", "plan", "analyze", "status",
    }  # fmt: skip
    for name, tool in tools.items():
        assert ("WRITES" in tool.description) == (name in WRITES)
        assert tool.annotations.destructive_hint is (True if name in WRITES else None) or (
            name not in WRITES and tool.annotations.destructive_hint is False
        )
        assert "text" in tool.output_schema["properties"]
    assert "--format agent" in client.instructions


@in_session
async def test_what_must_not_reach_the_command_line_is_refused(client, project):
    outside = str(project.parent / "secret.py")
    for tool, given in (
        ("findings", {"folder": ".."}),
        ("findings", {"folder": "link"}),
        ("findings", {"folder": "/"}),
        ("diff", {"folder": "link/project/.."}),
        ("fix", {"folder": "../project/../"}),
        ("analyze", {"path": outside}),
        ("compare", {"before": "..", "after": "."}),
        ("audit", {"target": f"{outside}:step"}),
        ("audit", {"target": "link/secret.py:step"}),
        ("plan", {"target": "../secret.py"}),
    ):
        said = (await called(client, tool, **given))["refused"]
        assert "lies outside of the working directory" in said and "\n" not in said
    for number in ({"steps": -3}, {"steps": 0}, {"wait_s": -1.0}):
        said = (await called(client, "audit", target="trainer:step", **number))["refused"]
        assert f"{next(iter(number))} is" in said and "\n" not in said and "http" not in said
    for tool, given in (
        ("audit", {"target": "--debug"}),
        ("audit", {"target": ""}),
        ("audit", {"target": "torchrun", "args": [outside]}),
        ("audit", {"target": f"{'x' * 5000}.py:step"}),
        ("audit", {"target": "trainer:step", "args": ["\0"]}),
        ("audit", {"target": "trainer:step", "select": "--fail-on=note"}),
        ("explain", {"code": "--json"}),
        ("explain", {"code": "NOPE999"}),
        ("explain", {"code": ""}),
        ("fix", {"folder": "--unsafe"}),
        ("plan", {"target": "trainer:step", "gpu": "--help"}),
        ("status", {"run": "7"}),
        ("findings", {"folder": "gone"}),
        ("findings", {"folder": "."}),
    ):
        assert "refused" in await called(client, tool, **given), (tool, given)
    assert not (project / "audits").exists()
    assert (await called(client, "explain", code="GRAPH002"))["text"].count("GRAPH002") > 0
    assert "audit explain" in (await called(client, "status"))["text"]


def descendants():
    """The server among the processes below this one, and the audits that it started."""
    below = psutil.Process().children(recursive=True)  # other tests' servers among them
    own = next((each for each in below if "mcp" in words_of(each)[-1:]), None)
    audits = [] if own is None else own.children(recursive=True)
    return own, [each for each in audits if "auditor" in " ".join(words_of(each))]


def words_of(process):
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def gone(processes, within_s=20.0):
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.1)
    return False


async def asleep(client):
    """An audit that sleeps in its first step, and its processes."""
    answer = await called(client, "audit", target="sleeper:step", wait_s=0)
    assert answer["state"] == "running"
    for _ in range(600):
        answer = await called(client, "status", run=answer["run"], wait_s=0.2)
        own, audits = descendants()
        if len(audits) >= 2:  # the command and its recording process
            return answer, own, audits
    raise AssertionError(answer)


@pytest.mark.parametrize("how", ["closed", "SIGTERM", "SIGKILL"])
def test_a_run_ends_with_its_server(project, how):
    async def whole():
        async with connected(project) as client:
            _, own, audits = await asleep(client)
            if how == "closed":
                return [own, *audits]
            own.send_signal(getattr(signal, how))
            assert gone([own, *audits])
        return []

    assert gone(anyio.run(whole))


@in_session
async def test_a_run_can_be_stopped(client, project):
    answer, _, audits = await asleep(client)
    ended = await called(client, "status", run=answer["run"], wait_s=60, stop=True)
    assert ended.get("exit_code") == 130 or "interrupted" in ended["refused"]
    assert gone(audits)


def test_without_the_package_one_sentence_says_how_to_get_it(tmp_path):
    hidden = tmp_path / "mcp"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('No mcp', name='mcp')")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "auditor", "mcp"], env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert "pip install 'torch-step-audit[mcp]'" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2


def test_paths_are_handed_on_relative_and_never_as_options(project):
    (project / "-x").mkdir()
    assert server.inside(project, str(project / "-x")) == "./-x"
    assert server.inside(project, "trainer.py") == "trainer.py"
    assert server.own_target(project, "package.module:step") == "package.module:step"


def test_long_answers_are_cut_at_a_line_and_say_so():
    short = "x\n" * (server.LIMIT // 2)
    assert server.bounded(short) == short
    cut = server.bounded("line of a diff\n" * 1000)
    assert len(cut) <= server.LIMIT
    kept = cut.count("line of a diff\n")
    assert cut.endswith(f"[{1000 - kept:,} more lines: ask for fewer codes]")
    assert len(server.bounded("x" * 100_000)) <= server.LIMIT


def test_runs_are_forgotten_when_there_are_many_but_not_those_in_progress(tmp_path, monkeypatch):
    monkeypatch.setattr("auditor.extensions.mcp.children.KEPT", 1)
    children = Children(tmp_path)
    first = children.start(["--version"])
    while first.ended() is None:
        time.sleep(0.05)
    second = children.start(["--version"])
    assert list(children.runs) == [second.run]
    children.end()
    assert not children.running()
