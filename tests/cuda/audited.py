"""Small programs with a planted fault, twins without it, and what their reports say."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda")
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
"""

COPIES = """
data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 256))
batches = iter(DataLoader(data, batch_size=32))
pinned = iter(DataLoader(data, batch_size=32, pin_memory=True))
mask = torch.ones(32, 256)
index = torch.arange(16)


def step():
    x, y = next(batches)
    x, y = x.to(device), y.to(device)
    more = next(pinned)[0].to(device)  # DATA004
    scale = torch.tensor([1.0, 2.0], device=device)  # SYNC011
    noise = torch.randn(32, 256).to(device)  # SYNC010
    late = mask.to(device, non_blocking=True)  # SYNC007
    some = x[index]  # SYNC006
    optimizer.zero_grad()
    loss = (model(x * late + noise) - y * scale[0] + more).square().mean() + some.mean()
    loss.backward()
    optimizer.step()
"""

NO_COPIES = """
data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 256))
batches = iter(DataLoader(data, batch_size=32, pin_memory=True))
mask = torch.ones(32, 256, device=device)
index = torch.arange(16, device=device)
scale = torch.tensor([1.0, 2.0], device=device)


def step():
    x, y = next(batches)
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    noise = torch.randn(32, 256, device=device)
    optimizer.zero_grad()
    loss = (model(x * mask + noise) - y * scale[0]).square().mean() + x[index].mean()
    loss.backward()
    optimizer.step()
"""

GROWS = """
history = []


def step():
    x = torch.randn(4096, 256, device=device)
    optimizer.zero_grad()
    out = model(x)  # grows
    out.square().mean().backward()
    optimizer.step()
    history.append(out.detach())
    del history[:-KEEP]
"""

FULL = """
def step():
    x = torch.randn(2**23, 256, device=device)
    optimizer.zero_grad()
    hidden = model[1](model[0](x))  # holds most
    loss = model[2](hidden).square().mean()
    loss.backward()  # runs out
    optimizer.step()
"""

HOST_LOOP = """
tokens = torch.randint(0, 9, (4096,))


def step():
    starts = torch.randint(0, 4000, (64,))
    x = torch.stack([tokens[i : i + 32] for i in starts]).float().pin_memory()
    x = x.to(device, non_blocking=True).repeat(1, 8)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


@dataclass
class Audited:
    """What an audit left: its folder, its report and what the terminal said."""

    folder: Path
    code: int
    said: str
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def recording(self) -> Path:
        """The folder of rows."""
        return self.folder / "recording"

    def findings(self, *severities: str) -> list[dict[str, Any]]:
        """Those of these severities; all without."""
        found = self.report["findings"]
        return [each for each in found if not severities or each["severity"] in severities]

    def at(self, code: str) -> list[str]:
        """The text of the lines that a rule's findings point at."""
        found = [each["site"] for each in self.findings() if each["code"] == code]
        return [(site or {"text": ""})["text"] for site in found]

    def verdict(self, code: str) -> str:
        """What became of a rule."""
        return next(each["status"] for each in self.report["verdicts"] if each["code"] == code)


def audited(audit, folder: Path, text: str, *words: str, steps: int = 12) -> Audited:
    """Audit a program on the device of this process."""
    folder.mkdir(parents=True)
    (folder / "trainer.py").write_text(HEAD + text)
    out = folder / "out"
    how = f"run trainer:step --steps {steps} --device cuda --out".split()
    done = audit(*how, str(out), *words, cwd=folder)
    written = out / "report.json"
    report = json.loads(written.read_text()) if written.is_file() else {}
    return Audited(out, done.returncode, done.stdout + done.stderr, report)
