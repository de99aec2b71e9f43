"""Audits on torch's own CUDA code, as a user with a GPU would make them: what the passes of a GPU
find by themselves, at its line, and that twins without the fault are silent.
"""

import json

import pytest

from tests.cuda.audited import COPIES, GROWS, HOST_LOOP, NO_COPIES, Audited, audited
from tests.lazily import Lazily
from tests.test_examples import CASES, EXAMPLES, line_of, places_of

pytestmark = pytest.mark.usefixtures("inside")

EXAMPLE_NAMES = ("energy_flow/broken", "energy_flow/repaired", "eit_p/broken")
"""Examples whose faults show without values; each takes some five seconds of a processor."""

BY_TIME = ("gc.collect()",)
"""Planted lines that a rule finds by what they take, which a null device does not tell."""

PROGRAMS = {
    "copies": COPIES,
    "no copies": NO_COPIES,
    "grows": GROWS.replace("KEEP", "1000"),
    "host loop": HOST_LOOP,
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory, audit):
    """Audits of :data:`PROGRAMS`, each made once."""
    return Lazily(lambda name: audited(audit, tmp_path_factory.mktemp("p") / "own", PROGRAMS[name]))


@pytest.fixture(scope="module")
def examples(tmp_path_factory, audit):
    """Audits of examples, each made once."""

    def one(name: str) -> Audited:
        out = tmp_path_factory.mktemp("e") / "out"
        how = "--steps 12 --device cuda --overhead 600".split()
        done = audit("run", CASES[name]["target"], *how, "--out", str(out), cwd=EXAMPLES / name)
        said = done.stdout + done.stderr
        return Audited(out, done.returncode, said, json.loads((out / "report.json").read_text()))

    return Lazily(one)


# -- the examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_an_example_gives_what_was_planted_and_nothing_else(examples, name):
    case, seen = CASES[name], examples[name]
    wanted = {
        (each["code"], *line_of(name, each["line_contains"]))
        for each in case.get("expected", ())
        if each["line_contains"] not in BY_TIME
    }
    found = [each for each in seen.findings() if each["code"] not in case.get("allowed", ())]
    assert wanted <= {place for each in found for place in places_of(each)}
    loud = {place for each in found if each["severity"] != "note" for place in places_of(each)}
    assert loud <= wanted
    assert not case.get("clean") or not seen.findings()


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_no_rule_and_no_probe_failed_on_an_example(examples, name):
    report = examples[name].report
    assert {each["status"] for each in report["verdicts"]} <= {"found", "clean", "skipped"}
    assert report["warnings"] == []


@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_no_time_of_a_device_that_computes_nothing_is_a_price(examples, name):
    report = examples[name].report
    assert report["run"]["step_us"] is None
    assert {each["lost_us_per_step"] for each in report["findings"]} <= {None}


# -- copies to the device ----------------------------------------------------------------------------


def test_copies_to_the_device_are_found_by_line(reports):
    seen = reports["copies"]
    for code in ("DATA004", "SYNC006", "SYNC007", "SYNC010", "SYNC011"):
        assert [line.partition("# ")[2] for line in seen.at(code)] == [code], code
    (pageable,) = seen.at("DATA003")
    assert pageable.startswith("batches = iter(DataLoader(")


def test_without_copies_nothing_is_found_and_all_six_rules_looked(reports):
    seen = reports["no copies"]
    assert seen.findings() == []
    codes = ("SYNC006", "SYNC007", "SYNC010", "SYNC011", "DATA003", "DATA004")
    assert [seen.verdict(code) for code in codes] == ["clean"] * 6


# -- memory ------------------------------------------------------------------------------------------


def test_memory_that_grows_has_a_line_and_so_have_the_calls_of_the_driver(reports):
    seen = reports["grows"]
    assert seen.at("MEM003") == ["history.append(out.detach())"]
    (grows,) = [each for each in seen.findings() if each["code"] == "MEM003"]
    assert {place["text"] for place in grows["places"]} == {
        "history.append(out.detach())",
        "out = model(x)  # grows",
    }
    for finding in seen.findings():
        if finding["code"] == "SYNC012":
            assert finding["severity"] == "note"
            assert finding["follows"] == "MEM003"
    assert set(seen.at("SYNC012")) <= {"out = model(x)  # grows"}


def test_a_loop_over_the_hosts_memory_is_no_loop_of_kernels(reports):
    assert reports["host loop"].findings() == []


# -- what was recorded, judged again -----------------------------------------------------------------


@pytest.mark.parametrize("what", ["", "recording/trace.json.gz", "recording/snapshot.pickle"])
def test_a_recording_its_trace_and_its_snapshot_are_judged_again(reports, audit, tmp_path, what):
    seen = reports["grows"]
    done = audit("analyze", str(seen.folder / what), "--out", str(tmp_path / "again"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = json.loads((tmp_path / "again" / "report.json").read_text())
    assert {each["status"] for each in again["verdicts"]} <= {"found", "clean", "skipped"}
    if not what:
        keys = [each["key"] for each in seen.findings()]
        assert [each["key"] for each in again["findings"]] == keys


def test_two_runs_are_compared(examples, audit, tmp_path):
    before, after = examples["energy_flow/broken"], examples["energy_flow/repaired"]
    done = audit("compare", str(before.folder), str(after.folder), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"findings: 0 new, {len(before.findings())} gone" in done.stdout
