"""``audit plan``'s words: what is printed, written and answered; its re-runs are formulas here."""

import json

import pytest
from click.testing import CliRunner

from auditor import null_device
from auditor.cli.main import main
from auditor.errors import AuditProblem
from auditor.extensions.plan import command
from auditor.extensions.plan.reruns import Failed
from tests.extensions.plan.made import MIB, Formula, formula


def linear(batch, wanted):
    return 500 * MIB + batch * 100 * MIB


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Runs the command with a formula in the place of the target."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()

    def run(*words, reruns=None, lacking=None):
        reruns = reruns or formula(linear)
        monkeypatch.setattr(null_device, "lacking", lambda: lacking)

        def made(target, args, device, gpu):
            reruns.target, reruns.args, reruns.device, reruns.gpu = target, args, device, gpu
            return reruns

        monkeypatch.setattr(command, "Reruns", made)
        done = CliRunner().invoke(main, ["plan", "train.py", *words], prog_name="audit")
        return done, reruns

    return run


def test_the_table(planned):
    done, reruns = planned("--gpu", "T4", "--gpu", "a10", "--world", "8", "--", "--lr=1")
    assert done.exit_code == 0, done.output
    head = next(line for line in done.stdout.splitlines() if "T4: fits, largest" in line)
    assert head.index("T4:") < head.index("A10:")
    assert "as it is" in done.stdout and "yes, 144" in done.stdout and "yes, 216" in done.stdout
    assert "ZeRO-3, 8 ranks" in done.stdout and "~" in done.stdout
    assert (reruns.args, reruns.device, reruns.gpu) == (("--lr=1",), "null", "T4")


def test_without_a_null_device_the_shadow_serves_and_says_so(planned):
    lacking = AuditProblem("there is no CUDA build", "pip install torch")
    done, reruns = planned("--gpu", "T4", lacking=lacking)
    assert reruns.device == "rehearse"
    assert "there is no CUDA build (pip install torch)" in done.stderr
    done, reruns = planned("--gpu", "T4", "--device", "rehearse")
    assert reruns.device == "rehearse" and "null device" not in done.stderr


def test_the_card_is_an_h100_unless_one_is_named(planned):
    done, reruns = planned("--format", "json")
    assert [card["name"] for card in json.loads(done.stdout)["cards"]] == ["H100"]
    assert reruns.gpu == "H100"


def test_an_interrupt_prints_what_is_known(planned):
    done, _ = planned("--gpu", "T4", reruns=formula(linear, stop_at=3))
    assert done.exit_code == 130
    assert (
        "activation checkpointing" in done.stdout
        and "interrupted: the rest is not known" in done.stdout
    )


@pytest.mark.parametrize(("ours", "code"), [(True, 2), (False, 3)])
def test_a_program_without_an_answer(planned, ours, code):
    class Broken(Formula):
        def run(self, wanted):
            raise Failed("it ended", ours=ours)

    done, _ = planned(reruns=Broken("t", (), "null", "T4"))
    assert done.exit_code == code and done.stdout == ""
    assert "audit: nothing can be planned: it ended" in done.stderr


def test_the_file(planned, tmp_path):
    done, _ = planned("--gpu", "T4", "--out", "new/plan.json", "--format", "json")
    assert done.stdout == "new/plan.json\n"
    assert json.loads((tmp_path / "new/plan.json").read_text())["schema"] == "audit-plan/1"
    done, _ = planned("--gpu", "T4", "--out", "plan.txt")
    assert (tmp_path / "plan.txt").read_text() + "plan.txt\n" == done.stdout


def test_a_file_that_cannot_be_written_costs_no_result(planned, tmp_path):
    done, _ = planned("--gpu", "T4", "--out", "train.py/plan.json", "--format", "json")
    assert done.exit_code == 2 and "cannot be written" in done.stderr
    assert json.loads(done.stdout)["schema"] == "audit-plan/1"
