"""A patch that only moves the wait to another line is not offered: the lines that read the same value
further below, on each step.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from auditor.rules.sync.waiting import BranchOnTensor, CopyToHostEveryStep, ScalarReadEveryStep

from tests.inprocess import judge

HEAD = """\
import logging
import math
import torch
from types import SimpleNamespace

log = logging.getLogger("moved")
log.addHandler(logging.NullHandler())
log.setLevel(logging.INFO)
log.propagate = False
model = torch.nn.Linear(8, 4, device="cuda")
history, best, state = [], math.inf, {}
bar = SimpleNamespace(set_postfix=lambda **more: None)

def step():
    global best
    out = model(torch.ones(4, 8, device="cuda"))
    loss = out.square().mean()
    loss.backward()
"""

# fmt: off
SHAPES = {
    "logged alone": "log.info(f'{loss.item():.3f}')  # patch",
    "formatted alone": "log.info(f'{loss:.3f}')  # patch",
    "logged twice": "log.info(f'{loss.item():.3f}')  # patch\nbar.set_postfix(loss=loss.item())  # patch",
    "logged, then kept": "log.info(f'{loss.item():.3f}')  # moved\nhistory.append(loss.item())",
    "formatted, then kept": "log.info(f'{loss:.3f}')  # moved\nhistory.append(float(loss))",
    "kept, then logged": "history.append(loss.item())\nlog.info('%f', loss.item())  # patch",
    "logged, then compared": "log.info('%f', loss.item())  # moved\nif loss > 1e9:\n    raise ValueError",
    "logged, then asked by a function": "log.info('%f', loss.item())  # moved\nif math.isnan(loss):\n    raise ValueError",
    "logged, then asked for its truth": "log.info('%f', loss.detach().item())  # moved\nif torch.isnan(loss):\n    raise ValueError",
    "shown, then the better one": "bar.set_postfix(loss=loss.item())  # moved\nbest = loss.item() if loss.item() < best else best",
    "logged, then in a dictionary": "log.info('%f', loss.item())  # moved\nstate['metrics'] = {'loss': loss.item()}",
    "logged, then returned": "log.info('%f', loss.item())  # moved\nreturn loss.item()",
    "logged, then copied": "log.info('%f', loss.item())  # moved\nhistory.append(loss.detach().cpu().numpy())",
    "logged, then kept by another name": "shown = loss.detach()\nlog.info('%f', loss.item())  # moved\nhistory.append(shown.item())",
    "logged, and read seldom": "log.info('%f', loss.item())  # patch\nstate['n'] = state.get('n', 0) + 1\nif state['n'] % 1000 == 0:\n    history.append(loss.item())",
    "logged, then another value is kept": "log.info('%f', loss.item())  # patch\nhistory.append(out.max().item())",
    "logged, then a new value of the name is kept": "log.info('%f', loss.item())  # patch\nloss = model(torch.ones(4, 8, device='cuda')).mean()\nhistory.append(loss.item())",
    "read once, logged and kept": "value = loss.item()\nlog.info('%f', value)\nhistory.append(value)",
}
# fmt: on


@pytest.mark.parametrize("name", SHAPES)
def test_a_patch_covers_all_that_would_wait(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"moved_{abs(hash(name))}.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in SHAPES[name].split("\n")))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)

    def made() -> Any:
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module.step

    rules = (ScalarReadEveryStep, BranchOnTensor, CopyToHostEveryStep)
    try:
        findings, _ = judge(tmp_path / "recording", made, rules, roots=[path], device="rehearse")
    finally:
        del sys.modules[path.stem]
    lines = path.read_text().split("\n")
    marked = {
        mark: {n for n, line in enumerate(lines, 1) if f"# {mark}" in line}
        for mark in ("patch", "moved")
    }
    assert findings
    told = [each for each in findings if each.remedy is not None]
    assert {each.site.line for each in told if each.remedy.edits} == marked["patch"]
    refused = [each for each in told if "would wait instead" in (each.remedy.refused or "")]
    assert {each.site.line for each in refused} == marked["moved"]
