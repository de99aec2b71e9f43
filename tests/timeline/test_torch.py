"""Traces that the installed torch writes now."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from auditor.timeline import Timeline
from auditor.timeline.phases import PROFILER


def model_step(optimizer, model, name):
    with record_function(name):
        loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "torch.json"
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    plan = schedule(wait=0, warmup=1, active=3, repeat=1)
    save = lambda profiler: profiler.export_chrome_trace(str(path))
    with profile(
        activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=save, **options
    ) as profiler:
        for number in range(4):
            model_step(optimizer, model, f'say "{number}"')
            profiler.step()
    return path


def test_the_trace_of_the_installed_torch(exported):
    line = Timeline.of(exported)
    assert (line.steps.source, line.steps.count) == (PROFILER, 3)
    assert line.operator_calls["aten::_local_scalar_dense"] >= 3
    assert len(line.trace.frames.start) > 100
    assert line.memory[0].peak_allocated > 0
    assert len(line.waits.call) == 0
    assert len(line.optimizer.rows) == 3
    line.compute()


def test_the_exporter_in_python(tmp_path):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        torch.ones(8).sum().item()
    path = tmp_path / "lines.json"
    try:
        profiler.profiler.export_chrome_trace(str(path), use_python_export=True)
    except TypeError:
        pytest.skip("this torch has no exporter in Python")
    line = Timeline.of(path)
    assert line.operator_calls["aten::sum"] >= 1
    assert line.memory[0].peak_allocated > 0
    assert line.trace.warnings == ()


def test_quotes_in_names_cost_no_event(exported):
    """torch 2.13 leaves them as they are, so that its file is no JSON; 2.15 writes others."""
    names = [name.replace("'", '"') for name in Timeline.of(exported).operator_calls]
    assert {name for name in names if name.startswith("say ")} == {f'say "{n}"' for n in (1, 2, 3)}
