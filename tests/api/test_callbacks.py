"""Audits from a framework's callbacks: what is audited, that nothing is disturbed, and that a
failure of ours costs one warning. Frameworks that are installed are used; stand-ins with their
hooks always are.
"""

import importlib
import sys
import types
import warnings
from types import SimpleNamespace

import pytest
import torch

from auditor.extensions.integrations.step_audit import StepAudit
from tests.api.test_python import hooks, training

NAMES = ("lightning", "transformers")


def loop(audit, steps):
    model, step = training()
    for number in range(1, steps + 1):
        step()
        audit.step_ended(number)
    audit.close()
    return [*model.parameters(), torch.randn(3)]


def audited(tmp_path, start=3, steps=12, **options):
    given = {"select": "GRAPH001", "out": tmp_path / "out", **options}
    return StepAudit(start, steps, **given)


class Nothing:
    def step_ended(self, taken):
        pass

    def close(self):
        pass


def test_steps_of_a_running_job_are_audited_and_no_bit_differs(tmp_path):
    before, audit, seen = hooks(), audited(tmp_path), []

    class Told(StepAudit):
        def step_ended(self, taken):
            super().step_ended(taken)
            seen.append((taken, self.report is not None, hooks() == before))

    audit.__class__ = Told
    state = loop(audit, 30)
    assert hooks() == before
    report = audit.report
    assert {each.code for each in report.findings} == {"GRAPH001"}
    assert report.run.steps == 12 and report.run.outcome == "completed"
    assert (tmp_path / "out" / "report.html").is_file()
    assert not any("took" in words and "steps of the audit" in words for words in report.warnings)
    written = [taken for taken, there, _ in seen if there]
    assert written == list(range(16, 31)), "the report is there while the job goes on"
    assert [taken for taken, _, clean in seen if not clean] == list(range(3, 16))
    for one, other in zip(state, loop(Nothing(), 30), strict=True):
        assert torch.equal(one, other)


def test_a_job_that_ends_early_has_a_report_and_one_that_never_begins_has_none(tmp_path):
    audit = audited(tmp_path, steps=20)
    loop(audit, 12)
    assert any("steps of the audit" in words for words in audit.report.warnings)
    late = audited(tmp_path, start=50)
    loop(late, 12)
    assert late.report is None


def test_a_second_job_in_the_same_folder_is_audited_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = (StepAudit(1, 6, select="GRAPH001") for _ in range(2))
    assert first.out.parent == second.out.parent
    assert first.out.name.startswith("callback-")
    assert StepAudit(1, every=100).out.name == "callback"
    loop(first, 12)
    assert (tmp_path / first.out / "report.html").is_file()


@pytest.mark.parametrize("where", ["begin", "end"])
def test_a_failure_of_ours_is_one_warning_and_training_goes_on(tmp_path, monkeypatch, where):
    before = hooks()
    if where == "begin":
        audit = audited(tmp_path, select="NOPE9")
    else:
        audit = audited(tmp_path)

        def broken(*_):
            raise KeyError("ours")

        monkeypatch.setattr("auditor.api._of_block", broken)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        state = loop(audit, 25)
    ours = [str(each.message) for each in said if "audit was given up" in str(each.message)]
    assert len(ours) == 1 and "training goes on" in ours[0]
    assert audit.report is None and hooks() == before
    for one, other in zip(state, loop(Nothing(), 25), strict=True):
        assert torch.equal(one, other)


def test_a_whole_job_is_watched(tmp_path, monkeypatch):
    monkeypatch.setattr("auditor.extensions.longrun.run.LAST_JUDGE_S", 0.0)
    before = hooks()
    audit = audited(tmp_path, steps=6, every=10, budget=1.0, keep=1)
    state = loop(audit, 30)
    assert hooks() == before and audit.run.steps == 27
    (look,) = (tmp_path / "out" / "looks").iterdir()
    assert look.name.endswith("step10") or look.name.endswith("step20")
    for one, other in zip(state, loop(Nothing(), 30), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(TypeError, match="only with every="):
        audited(tmp_path, keep=1)


def stand_in(monkeypatch, name):
    """The callback class over a module that has nothing but the framework's base class."""
    module, base = {
        "lightning": ("lightning.pytorch", "Callback"),
        "transformers": ("transformers", "TrainerCallback"),
    }[name]
    made = types.ModuleType(module)
    setattr(made, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, module.partition(".")[0], types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module, made)
    monkeypatch.delitem(sys.modules, f"auditor.extensions.integrations.{name}", raising=False)
    found = importlib.import_module(f"auditor.extensions.integrations.{name}").AuditCallback
    monkeypatch.delitem(sys.modules, f"auditor.extensions.integrations.{name}")
    return found


@pytest.mark.parametrize("zero", [True, False], ids=["rank 0", "rank 1"])
@pytest.mark.parametrize("name", NAMES)
def test_the_hooks_of_each_framework(tmp_path, monkeypatch, name, zero):
    made = stand_in(monkeypatch, name)(3, 12, select="GRAPH001", out=tmp_path / "out")
    _, step = training()
    for number in range(1, 41):
        half = number // 2  # two micro-batches make a step
        if number % 2 == 0:
            step()
        if name == "lightning":
            trainer = SimpleNamespace(is_global_zero=zero, global_step=half)
            made.on_train_batch_end(trainer, None, None, None, number)
        elif number % 2 == 0:
            state = SimpleNamespace(is_world_process_zero=zero, global_step=half)
            made.on_step_end(None, state, None, model=None)
    made.on_train_end(None, None)
    report = made.audit.report
    assert (report is not None) == zero
    assert not zero or {each.code for each in report.findings} == {"GRAPH001"}


def test_a_job_that_raises_in_lightning_has_a_report_and_no_hook_is_left(tmp_path, monkeypatch):
    before = hooks()
    made = stand_in(monkeypatch, "lightning")(2, 20, select="NUM", out=tmp_path / "out")
    _, step = training()
    for number in range(1, 9):
        step()
        made.on_train_batch_end(SimpleNamespace(is_global_zero=True, global_step=number), 0)
    made.on_exception(None, None, ZeroDivisionError("the user's"))
    assert hooks() == before
    assert made.audit.report.run.outcome == "raised"
    assert made.audit.report.run.error.type == "ZeroDivisionError"


# ---- Accelerate: a tracker, not a callback ---------------------------------------------------------


class GeneralTracker:
    """As Accelerate's own: it asks a subclass for its names, and takes no other argument."""

    main_process_only = True

    def __init__(self, _blank=False):
        missing = {"name", "requires_logging_directory", "tracker"} - set(dir(self))
        if missing and not _blank:
            raise NotImplementedError(missing)


class Accelerator:
    """What Accelerate does with its trackers on each process."""

    def __init__(self, log_with, main=True):
        self.log_with, self.trackers, self.main = log_with, [], main

    def init_trackers(self, name):
        if self.main:
            self.trackers = list(self.log_with)
        for each in self.trackers:
            each.start()

    def log(self, values, step=None):
        for each in self.trackers:
            each.log(values, step=step)

    def end_training(self):
        for each in self.trackers:
            each.finish()


@pytest.fixture
def tracker(monkeypatch):
    module = types.ModuleType("accelerate.tracking")
    module.GeneralTracker = GeneralTracker
    monkeypatch.setitem(sys.modules, "accelerate", types.ModuleType("accelerate"))
    monkeypatch.setitem(sys.modules, "accelerate.tracking", module)
    monkeypatch.delitem(sys.modules, "auditor.extensions.integrations.accelerate", raising=False)
    yield importlib.import_module("auditor.extensions.integrations.accelerate").AuditTracker
    sys.modules.pop("auditor.extensions.integrations.accelerate", None)


def accelerated(accelerator, steps, logged=1):
    model, step = training()
    accelerator.init_trackers("job")
    for number in range(1, steps + 1):
        step()
        if number % logged == 0:
            accelerator.log({"loss": 1.0 / number}, step=number // logged)
    accelerator.end_training()
    return [*model.parameters(), torch.randn(3)]


@pytest.mark.parametrize("logged", [1, 5])
def test_steps_of_an_accelerate_job_are_audited_and_no_bit_differs(
    tmp_path, caplog, tracker, logged
):
    before, told = hooks(), []
    made = tracker(
        3, 12, select="GRAPH001", out=tmp_path / "out", log_to=lambda *it: told.append(it)
    )
    accelerator = Accelerator([made])
    state = accelerated(accelerator, 40, logged)
    assert hooks() == before
    report = made.tracker.report
    assert {each.code for each in report.findings} == {"GRAPH001"}
    assert report.run.steps == 12 and report.run.outcome == "completed"
    ended = {1: 16, 5: 20}[logged]  # the first line logged behind step 3 + 12, or 5 + 12
    assert told == [("audit/findings", 1.0, ended)]
    (said,) = [each for each in caplog.messages if "GRAPH001" in each]
    assert said.endswith(f"; {tmp_path / 'out' / 'report.html'}")
    assert (tmp_path / "out" / "report.html").is_file()
    for one, other in zip(state, accelerated(Accelerator([]), 40), strict=True):
        assert torch.equal(one, other)


def test_a_tracker_may_log_to_its_own_accelerator_and_one_that_fails_costs_a_line(
    tmp_path, caplog, tracker
):
    lines = []
    other = SimpleNamespace(
        start=lambda: None, finish=lambda: None, log=lambda values, step: lines.append(values)
    )
    made = tracker(
        1,
        6,
        select="GRAPH001",
        out=tmp_path / "out",
        log_to=lambda name, value, step: accelerator.log({name: value}, step=step),
    )
    accelerator = Accelerator([other, made])
    accelerated(accelerator, 12)
    assert lines.count({"audit/findings": 1.0}) == 1
    broken = tracker(1, 6, select="GRAPH001", out=tmp_path / "again", log_to=lambda *_: 1 / 0)
    accelerated(Accelerator([broken]), 12)
    assert broken.audit.report is not None
    assert any("log_to: ZeroDivisionError" in each for each in caplog.messages)


def test_accelerate_jobs_that_end_early_late_or_on_another_rank(tmp_path, tracker):
    before = hooks()
    early = tracker(3, 30, select="GRAPH001", out=tmp_path / "early")
    accelerated(Accelerator([early]), 15)
    assert any("steps of the audit" in words for words in early.audit.report.warnings)
    assert (tmp_path / "early" / "report.html").is_file()
    late, other = (tracker(start, 6, select="GRAPH001", out=tmp_path / "no") for start in (50, 1))
    accelerated(Accelerator([late]), 15)
    accelerated(Accelerator([other], main=False), 15)
    assert late.audit.report is None and other.audit.report is None
    assert not (tmp_path / "no").exists() and hooks() == before


# ---- the frameworks themselves -------------------------------------------------------------------


def lightning_state(callbacks, tmp_path):
    pl = pytest.importorskip("lightning.pytorch")
    torch.manual_seed(3)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.kept = torch.nn.Linear(8, 8), []

        def training_step(self, batch, _):
            loss = self.net(batch).pow(2).mean()
            self.kept.append(loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Module()
    data = torch.utils.data.DataLoader(torch.randn(120, 8), batch_size=4)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, data)
    return [*module.parameters(), torch.randn(3)]


def test_lightning(tmp_path):
    pytest.importorskip("lightning.pytorch")
    from auditor.extensions.integrations.lightning import AuditCallback

    made = AuditCallback(3, 12, select="GRAPH001", out=tmp_path / "out")
    before = hooks()
    state = lightning_state([made], tmp_path)
    assert hooks() == before
    assert {each.code for each in made.audit.report.findings} == {"GRAPH001"}
    for one, other in zip(state, lightning_state([], tmp_path), strict=True):
        assert torch.equal(one, other)


def transformers_state(callbacks, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch.manual_seed(3)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.kept = torch.nn.Linear(8, 8), []

        def forward(self, x):
            loss = self.net(x).pow(2).mean()
            self.kept.append(loss)
            return {"loss": loss}

    model = Model()
    rows = [{"x": row} for row in torch.randn(120, 8)]
    asked = transformers.TrainingArguments(
        str(tmp_path / "hf"), max_steps=30, per_device_train_batch_size=4, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    transformers.Trainer(model, asked, train_dataset=rows, callbacks=callbacks).train()
    return [*model.parameters(), torch.randn(3)]


def test_transformers(tmp_path):
    pytest.importorskip("transformers")
    from auditor.extensions.integrations.transformers import AuditCallback

    made = AuditCallback(3, 12, select="GRAPH001", out=tmp_path / "out")
    before = hooks()
    state = transformers_state([made], tmp_path)
    assert hooks() == before
    assert {each.code for each in made.audit.report.findings} == {"GRAPH001"}
    for one, other in zip(state, transformers_state([], tmp_path), strict=True):
        assert torch.equal(one, other)


def accelerate_state(trackers):
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(3)
    accelerator = accelerate.Accelerator(cpu=True, log_with=trackers, gradient_accumulation_steps=2)
    model = torch.nn.Linear(8, 8)
    data = torch.utils.data.DataLoader(torch.randn(240, 8), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    accelerator.init_trackers("job")
    kept = []
    for batch in data:
        with accelerator.accumulate(model):
            loss = model(batch).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            kept.append(loss)
        accelerator.log({"batches": len(kept)})
    accelerator.end_training()
    return [*model.parameters(), torch.randn(3)]


def test_accelerate(tmp_path):
    pytest.importorskip("accelerate")
    from auditor.extensions.integrations.accelerate import AuditTracker

    made = AuditTracker(3, 12, select="GRAPH001", out=tmp_path / "out")
    before = hooks()
    state = accelerate_state([made])
    assert hooks() == before
    assert {each.code for each in made.audit.report.findings} == {"GRAPH001"}
    assert made.steps == 30, "sixty batches, two for each step"
    for one, other in zip(state, accelerate_state([]), strict=True):
        assert torch.equal(one, other)
