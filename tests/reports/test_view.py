"""``audit view`` without a browser: what is served, to whom, from the folder alone; its ends."""

import html
import http.client
import importlib
import json
import os
import re
import signal
import socket
import sys
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.extensions.tensorboard_tab import command as view
from auditor.extensions.tensorboard_tab import pages as catapult
from auditor.extensions.tensorboard_tab import pages as slices
from auditor.extensions.tensorboard_tab.pages import Pages
from auditor.extensions.tensorboard_tab.runs import RunFolder, runs_in
from tests.reports import golden_attack
from tests.reports.viewing import ROOT, plain_trace, survivors, viewing, write_run


@pytest.fixture
def folder(tmp_path):
    write_run(tmp_path / "audits" / "one", trace=plain_trace())
    write_run(tmp_path / "audits" / "deep" / "two")
    (tmp_path / "secret.json").write_text('"secret"')
    return tmp_path / "audits"


def ask(pages, route, method="GET", **query):
    told: dict[str, Any] = {}

    def start(status, headers):
        told.update(status=status, headers=dict(headers))

    body = pages.answer(route, {"REQUEST_METHOD": method, "QUERY_STRING": urlencode(query)}, start)
    return told["status"], told["headers"], b"".join(body)


# -- runs ------------------------------------------------------------------------------------------


def test_another_tools_report_is_no_run(tmp_path):
    (tmp_path / "report.json").write_text('{"tests": 3}')
    done = CliRunner().invoke(main, ["view", str(tmp_path), "--no-browser"])
    assert done.exit_code == 2 and "no run of audit" in done.output


def test_a_link_out_of_the_folder_is_not_followed(folder, tmp_path):
    run = RunFolder("one", folder / "one", folder)
    for file in ("report.json", "report.html", "recording/trace.json.gz"):
        (folder / "one" / file).unlink()
        (folder / "one" / file).symlink_to(tmp_path / "secret.json")
    assert (run.report(), run.page(), run.trace()) == (None, None, None)
    outside = write_run(tmp_path / "outside")
    (folder / "linked").symlink_to(outside)
    assert "linked" not in [each.name for each in runs_in(folder)]


# -- pages -----------------------------------------------------------------------------------------


def test_the_list_of_runs_says_what_they_found(folder):
    (folder / "broken").mkdir()
    (folder / "broken" / "report.json").write_text("{")
    _, _, body = ask(Pages(folder), "runs")
    told = {run["name"]: run for run in json.loads(body)["runs"]}
    broken, two, one = told["broken"], told["deep/two"], told["one"]
    assert (one["name"], one["trace"], two["trace"]) == ("one", True, False)
    assert one["said"].startswith("verified: the patch for SYNC001 saves 8.63 ms per step")
    assert broken["problem"].startswith("report.json cannot be read: this is not a report")


@pytest.mark.parametrize("route", ["report", "trace", "findings"])
@pytest.mark.parametrize("run", ["..", "../secret.json", "one/..", "/etc", "one\0", "", "%2e%2e"])
def test_no_name_leads_out_of_the_folder(folder, route, run):
    status, _, body = ask(Pages(folder), route, run=run)
    assert status.startswith("404")
    assert b"secret" not in body.replace(b"secret.json", b"")


def test_only_reading_is_answered(folder):
    assert ask(Pages(folder), "runs", "POST")[0].startswith("405")


def test_a_report_runs_only_what_its_own_policy_names_and_reaches_nobody(folder):
    status, headers, body = ask(Pages(folder), "report", run="one")
    policy = headers["Content-Security-Policy"]
    assert status.startswith("200")
    assert body == (folder / "one" / "report.html").read_bytes()
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts" in policy
    assert "connect-src" not in policy
    (scripts,) = re.findall(r"script-src ([^;]*);", policy)
    assert scripts == re.findall(r"script-src ([^;]*);", html.unescape(body[:4096].decode()))[0]
    assert scripts.startswith("'sha256-")


def test_a_strangers_page_runs_nothing(folder):
    (folder / "one" / "report.html").write_text(
        "<meta content=\"script-src 'unsafe-inline';\"><script>attack()</script>"
    )
    assert (
        "script-src 'none';"
        in ask(Pages(folder), "report", run="one")[1]["Content-Security-Policy"]
    )


def test_every_page_has_a_policy_of_this_origin_alone(folder):
    pages = Pages(folder)
    for route in pages.routes:
        _, headers, _ = ask(pages, route, run="one")
        assert headers["X-Content-Type-Options"] == "nosniff"
        if headers["Content-Type"].startswith("text/html"):
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none';")
            assert "http" not in policy
            assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]


def test_an_attacked_report_is_data_to_the_list(tmp_path):
    write_run(tmp_path / "x", golden_attack.attack_report())
    for route in ("runs", "findings"):
        status, headers, body = ask(Pages(tmp_path), route, run="x")
        assert (status, headers["Content-Type"]) == ("200 OK", "application/json")
        assert body.isascii()
        shown = json.dumps(json.loads(body), ensure_ascii=False)
        assert "\u202e" not in re.sub(
            r'"(key|file|function)": "[^"]*"', "", shown.replace('\\"', "")
        )


def test_without_the_package_of_the_viewer_it_is_said(folder, monkeypatch):
    monkeypatch.setattr(catapult, "PACKAGE", "no_such_package")
    status, _, body = ask(Pages(folder), "viewer", run="one")
    assert status.startswith("404")
    assert body.decode() == f"{catapult.MISSING}\n"


def test_the_viewers_own_script_is_allowed_by_its_hash_and_unchanged():
    made = catapult.viewer()
    assert made is not None
    assert made.policy.count("'sha256-") == 1
    assert b"https://cdnjs" not in made.page


def test_every_pattern_is_of_a_rule_and_reads_in_both_languages():
    from auditor.judging import catalogue

    codes = {rule.code for rule in catalogue.rules()}
    assert slices.PATTERNS.keys() <= codes
    assert slices.OUTERMOST <= slices.PATTERNS.keys()
    for expression in slices.PATTERNS.values():
        assert re.compile(expression)
        assert not re.search(r"\(\?[^:]|\\A|\\Z", expression), "not in JavaScript"


# -- TensorBoard -----------------------------------------------------------------------------------


def _project():
    import tomllib

    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return loaded


def test_the_entry_point_names_a_plugin_of_tensorboard(tmp_path):
    from tensorboard.plugins import base_plugin

    ((_, place),) = _project()["entry-points"]["tensorboard_plugins"].items()
    module, _, name = place.partition(":")
    plugin = getattr(importlib.import_module(module), name)
    assert issubclass(plugin, base_plugin.TBPlugin)
    context = base_plugin.TBContext(logdir=str(tmp_path))
    assert not plugin(context).is_active()
    write_run(tmp_path / "run")
    assert plugin(context).is_active()
    assert plugin(context).frontend_metadata().tab_name == "Audit"
    assert "/page.html" in plugin(context).get_plugin_apps()


def test_the_tab_shows_the_folders_of_a_logdir_spec_by_their_names(tmp_path):
    from tensorboard.plugins.base_plugin import TBContext

    from auditor.extensions.tensorboard_tab.plugin import AuditPlugin

    write_run(tmp_path / "one" / "run", trace=plain_trace())
    write_run(tmp_path / "two" / "run")
    (tmp_path / "secret").mkdir()

    def plugin(specification):
        return AuditPlugin(TBContext(flags=SimpleNamespace(logdir_spec=specification)))

    made = plugin(f"a:{tmp_path / 'one'},{tmp_path / 'two'}")
    assert made.is_active()
    pages = made.get_plugin_apps()["/runs"].func.__self__
    assert [run.name for run in pages.runs()] == ["a/run", "run"]
    assert ask(pages, "trace", run="a/run")[0].startswith("200")
    assert ask(pages, "trace", run="run")[0].startswith("404")
    for name in ("a/../two/run", "one/run", "a"):
        assert ask(pages, "report", run=name)[0].startswith("404")
    for nothing in ("", f"a:{tmp_path / 'secret'}", "gs://bucket/x"):
        assert not plugin(nothing).is_active()
    assert plugin("").get_plugin_apps() == {}


def test_the_plugin_imports_no_torch():
    import subprocess

    code = (
        "import auditor.extensions.tensorboard_tab.plugin, sys; assert not {'torch', 'pandas'} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# -- the command -----------------------------------------------------------------------------------


def get(url, path, host=None):
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=20)
    connection.putrequest("GET", path, skip_host=host is not None)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_it_serves_and_ends_with_all_that_it_started(folder, monkeypatch, tmp_path_factory):
    for worker in range(
        3
    ):  # so that torch-tb-profiler has something to read while it is told to end
        exported = folder / "one" / "tensorboard" / "step" / f"host_{worker}.1.pt.trace.json.gz"
        exported.parent.mkdir(parents=True, exist_ok=True)
        exported.write_bytes((folder / "one" / "recording" / "trace.json.gz").read_bytes())
    monkeypatch.setenv("TMPDIR", str(kept := tmp_path_factory.mktemp("t")))
    with viewing(str(folder), "--port", "0", cwd=folder) as (process, url):
        prefix = "/data/plugin/audit/"
        assert get(url, f"{prefix}runs")[0] == 200
        assert get(url, f"{prefix}report?run=../secret.json")[0] == 404
        assert get(url, f"{prefix}../../secret.json")[0] in (404, 400)
        os.killpg(process.pid, signal.SIGTERM)  # as Ctrl-C does: to all processes of the terminal
        assert process.wait(timeout=60) == 0
        assert not survivors(process.pid)
        assert process.stderr is not None
        assert process.stderr.read() == "Ctrl-C ends it.\n"
    assert not list(kept.glob("pymp-*"))


def test_a_strangers_name_for_this_machine_is_refused(folder):
    with viewing(str(folder), "--port", "0", cwd=folder) as (_, url):
        runs = "/data/plugin/audit/runs"
        for host in ("attacker.example", "attacker.example:6006", "127.0.0.1.attacker.example", ""):
            assert get(url, runs, host=host)[0] == 403, host
        assert get(url, runs)[0] == 200
        assert get(url, "/", host="attacker.example")[0] == 403


def test_a_port_that_is_taken_is_one_sentence(folder, audit):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = audit("view", str(folder), "--port", port, "--no-browser", cwd=folder)
    assert done.returncode == 2
    assert done.stderr.startswith(f"audit: port {port} cannot be used: ")
    assert "Traceback" not in done.stderr


def test_what_holds_no_run_is_refused(tmp_path, audit):
    (tmp_path / "empty").mkdir()
    (tmp_path / "judge" / "recording").mkdir(parents=True)
    (tmp_path / "judge" / "recording" / "manifest.json").write_text("{}")
    (tmp_path / "file").touch()
    said = {
        name: audit("view", name, "--no-browser", cwd=tmp_path)
        for name in ("empty", "judge", "file", "gone")
    }
    assert {done.returncode for done in said.values()} == {2}
    assert "empty holds no run of audit (no report.json)" in said["empty"].stderr
    assert "audit analyze judge writes it" in said["judge"].stderr
    assert "file is a file, not a folder" in said["file"].stderr
    assert "gone does not exist" in said["gone"].stderr


def test_a_terminal_that_closes_ends_it_but_under_nohup(monkeypatch):
    monkeypatch.setattr(
        view.threading, "Event", lambda: SimpleNamespace(set=None, wait=lambda seconds: True)
    )
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    try:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # as a shell does for what it starts with `&`: kill -INT ends it all the same
        view._wait()
        assert all(callable(signal.getsignal(number)) for number in numbers)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        view._wait()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and callable(
            signal.getsignal(signal.SIGINT)
        )
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
