"""Rules that repeat a warning of torch's. Their manual pages' examples are their cases; here is what
torch as installed says, and what a line, a filter or another library changes.
"""

import re
import textwrap
from pathlib import Path

import pytest
from auditor.rules.torch_says import TorchSays

from auditor.capture.probes.step.torch_warnings import TEXTS, name_of
from auditor.judging import catalogue
from auditor.model import Finding
from tests.inprocess import judge
from tests.rules.test_rules import load, unload

SAID = [rule for rule in catalogue.own_rules() if issubclass(rule, TorchSays)]
RULES = {rule.code: rule for rule in SAID}


def test_each_text_has_one_rule() -> None:
    assert sorted(rule.warning for rule in SAID) == sorted(TEXTS)


def test_a_text_is_known_by_its_beginning_alone() -> None:
    text = "optimizer contains a parameter group with duplicate parameters; in future"
    assert name_of(text) == "parameter twice"
    assert name_of(f"I say: {text}") is None
    assert name_of("optimizer contains a parameter group") is None


HEAD = """
import warnings
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
def backward():
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
"""


def found(tmp_path: Path, code: str, program: str, **more: object) -> list[Finding]:
    """Findings of a rule in a program."""
    path = tmp_path / "program.py"
    path.write_text(HEAD + textwrap.dedent(program))

    def make() -> object:
        unload(path)
        return load(path).step

    try:
        return judge(tmp_path / "recording", make, (RULES[code],), roots=[path], **more)[0]
    finally:
        unload(path)


def lines(tmp_path: Path, code: str, program: str, **more: object) -> list[tuple[int, float]]:
    """Line and count per step of each."""
    findings = found(tmp_path, code, program, **more)
    return [(finding.site.line, finding.per_step) for finding in findings]


FIRST = HEAD.count("\n")
"""Lines of the head; a program's own begin with an empty one."""


def test_a_warning_that_the_program_silences_is_heard_on_every_step(tmp_path: Path) -> None:
    program = """
    warnings.filterwarnings("ignore")
    def step():
        backward()
        torch.nn.functional.softmax(torch.ones(2, 2, 2))
    """
    assert lines(tmp_path, "TRAIN015", program) == [(FIRST + 5, 1.0)]


LIBRARY = """
import warnings, torch
def quietly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.functional.softmax(torch.ones(2, 2))
def loudly():
    torch.nn.functional.softmax(torch.ones(2, 2))
"""


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of the program
@pytest.mark.parametrize(("call", "found"), [("quietly", 0), ("loudly", 1)])
def test_what_a_library_silences_around_its_call(tmp_path: Path, call: str, found: int) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    program = f"""
    names = {{}}
    exec(compile(open({str(library)!r}).read(), {str(library)!r}, "exec"), names)
    def step():
        backward()
        names[{call!r}]()
    """
    assert len(lines(tmp_path, "TRAIN015", program)) == found


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of the program
def test_a_scaler_that_leaves_steps_out_is_no_wrong_order(tmp_path: Path) -> None:
    program = """
    scaler = torch.amp.GradScaler("cpu")
    def step():
        optimizer.zero_grad()
        scaler.scale(model(torch.full((4, 8), 1e30)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    """
    assert lines(tmp_path, "OPT009", program) == []


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of the program
def test_a_schedule_that_counts_micro_batches_is_told_so(tmp_path: Path) -> None:
    program = """
    count = 0
    def step():
        global count
        count += 1
        (model(torch.ones(4, 8)).square().mean() / 4).backward()
        if count % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
    """
    findings = found(tmp_path, "OPT009", program)
    assert [each.site.line for each in findings] == [FIRST + 10]
    assert re.search(r"steps \d+ times in \d optimizer steps", findings[0].message)


def test_a_schedule_of_schedules_gives_the_epoch_itself(tmp_path: Path) -> None:
    program = """
    both = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [scheduler, torch.optim.lr_scheduler.StepLR(optimizer, 9)], milestones=[2]
    )
    def step():
        backward()
        optimizer.step()
        both.step()
    """
    assert lines(tmp_path, "OPT012", program) == []


def test_clipping_of_a_filter_that_is_used_up(tmp_path: Path) -> None:
    program = """
    parameters = filter(lambda each: each.requires_grad, model.parameters())
    def step():
        backward()
        list(parameters)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    """
    assert lines(tmp_path, "OPT010", program) == [(FIRST + 2, 1.0)]
