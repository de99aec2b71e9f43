"""``audit plan`` beside programs that were edited by hand: the peak of a re-run whose loader was
resized, of the same program with that batch size in its source, and what the memory model predicted
from two smaller batches. A GPT with AdamW, and a loss over all pairs of a batch, which is quadratic
in it.

$ python benchmarks/plan_exactness.py [rehearse|null]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from auditor.extensions.plan import batch_size
from auditor.extensions.plan.fitting import MemoryModel, Point
from auditor.extensions.plan.measured import Measured
from auditor.extensions.plan.reruns import Rerun, Reruns

MIB = 1 << 20

GPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

T, D, LAYERS, VOCABULARY = 128, 128, 4, 512

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        a = F.softmax((q @ k.transpose(-1, -2)) / (d // 4) ** 0.5, -1) @ v
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(D, VOCABULARY)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randint(VOCABULARY, (16384, T + 1)))
for (batch,) in DataLoader(data, batch_size=8, shuffle=True):
    x, y = batch[:, :-1].cuda(), batch[:, 1:].cuda()
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    optimizer.step()
"""

PAIRS = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(16384, 64))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(data, batch_size=64, shuffle=True):
    z = F.normalize(model(x.cuda()), dim=1)
    distances = (z[:, None, :] - z[None, :, :]).square().sum(-1)
    optimizer.zero_grad()
    F.cross_entropy(-distances, torch.arange(len(x), device="cuda")).backward()
    optimizer.step()
"""


def compared(device: str, source: str, sizes: tuple[int, ...]) -> None:
    """Rows of a table; the first size is the model's second point, and not predicted."""
    Path("train.py").write_text(source)
    reruns = Reruns("train.py", (), device, "H100")  # type: ignore[arg-type]
    base = reruns.run(Rerun())
    setting = batch_size.found(base, (), reruns.files)
    assert not isinstance(setting, str), setting
    reruns.setting = setting
    points = [_point(setting.size, base)]
    for size in sizes:
        resized = reruns.run(Rerun(batch=size))
        edited = source.replace(f"batch_size={setting.size}", f"batch_size={size}")
        Path("edited.py").write_text(edited)
        known = Reruns("edited.py", (), device, "H100").run(Rerun())  # type: ignore[arg-type]
        predicted = "-"
        if len(points) > 1:
            amount = MemoryModel(points).allocated(size)
            predicted = f"{amount / MIB:.1f} ({amount / known.allocated - 1:+.1%})"
        else:
            points.append(_point(size, resized))
        shown = [
            f"{each.allocated / MIB:.1f} of {each.reserved / MIB:.0f}" for each in (known, resized)
        ]
        print(
            f"| {size} | {shown[0]} | {shown[1]} | {predicted} | {resized.seconds:.1f} |",
            flush=True,
        )


def _point(size: int, found: Measured) -> Point:
    return Point(size, found.phases, found.allocated, found.reserved)


def main() -> None:
    """Print a table for each program."""
    device = sys.argv[1] if len(sys.argv) > 1 else "rehearse"
    sizes = (16, 32, 64) if device == "rehearse" else (16, 32, 64, 512, 2048)
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        os.chdir(folder)
        for name, source, batches in (("GPT", GPT, sizes), ("pairs", PAIRS, (128, 256, 1024))):
            print(f"{name} on {device}, MiB allocated of reserved")
            print("| batch | edited | re-run of audit plan | predicted | seconds |")
            print("|---|---|---|---|---|")
            compared(device, source, batches)
        os.chdir("/")


if __name__ == "__main__":
    main()
