"""How much memory the passes of an audit take beside the program's own.

    OMP_NUM_THREADS=1 python benchmarks/pass_memory.py [NAME ...]

Each program runs alone, and then under ``audit run --device cpu``; both peaks are those of the
largest process, asked every 20 ms. The goal: at most 1.3 times the program's own and 200 MiB. Exit
code 1 where one is beyond it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
SHARE, MORE = 1.3, 200 << 20
STEPS = "30"

BEGIN = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
"""

PROGRAMS = {
    "temporaries": """
model = nn.Linear(64, 64)
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(60):
    h = model(torch.randn(20000, 64))
    for k in range(20):
        h = h + 0.1
    loss = h.square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "tiles": """
mean, color, alpha = (nn.Parameter(torch.rand(140, n)) for n in (2, 3, 1))
opt = torch.optim.Adam([mean, color, alpha], lr=1e-3)
pixels = torch.stack(torch.meshgrid(torch.arange(64), torch.arange(64), indexing="xy"), -1)
for i in range(60):
    image = torch.zeros(128, 128, 3)
    for t in range(4):
        apart = pixels.flatten(0, -2)[:, None, :] - 64 * mean[None, :]
        weight = torch.exp(-0.5 * (apart[:, :, 0] ** 2 + apart[:, :, 1] ** 2) / 100)
        opaque = (weight[..., None] * alpha[None]).clip(max=0.99)
        seen = torch.cat([torch.ones_like(opaque[:, :1]), 1 - opaque[:, :-1]], dim=1).cumprod(dim=1)
        y, x = divmod(t, 2)
        image[y * 64:y * 64 + 64, x * 64:x * 64 + 64] = (
            (seen * opaque * color[None]).sum(dim=1).reshape(64, 64, 3)
        )
    loss = (image - 0.5).abs().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "language": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16000, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(64, 16000)
    def forward(self, ids):
        return self.head(self.layers(self.embedding(ids)))
model = Model()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range(60):
    ids = torch.randint(0, 16000, (8, 129))
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 16000), ids[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "recurrent": """
cell, head = nn.LSTMCell(16, 32), nn.Linear(32, 1)
opt = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
for i in range(60):
    x, h, c, loss = torch.randn(300, 8, 16), torch.zeros(8, 32), torch.zeros(8, 32), 0.0
    for t in range(300):
        h, c = cell(x[t], (h, c))
        loss = loss + head(torch.tanh(h)).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
""",
    "images": """
def block(n, m):
    return nn.Sequential(nn.Conv2d(n, m, 3, padding=1), nn.BatchNorm2d(m), nn.ReLU(), nn.MaxPool2d(2))
model = nn.Sequential(block(3, 16), block(16, 32), block(32, 32), nn.Flatten(), nn.Linear(8192, 10))
opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(640, 3, 128, 128), torch.randint(0, 10, (640,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
""",
}


def peak(command: list[str], folder: str) -> int:
    """Bytes of the largest process that the command runs, at their most."""
    most = 0
    with open(os.devnull, "w") as nowhere:
        ran = psutil.Popen(command, cwd=folder, stdout=nowhere, stderr=subprocess.STDOUT)
        while ran.poll() is None:
            with suppress(psutil.Error):
                for each in (ran, *ran.children(recursive=True)):
                    with suppress(psutil.Error):
                        most = max(most, each.memory_info().rss)
            time.sleep(0.02)
    return most


def main() -> int:
    """Print a row for each program."""
    beyond = 0
    for name in sys.argv[1:] or PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.py").write_text(BEGIN + PROGRAMS[name])
            own = peak([sys.executable, "train.py"], folder)
            audit = [sys.executable, "-m", "auditor", "run", "train.py", "--device", "cpu"]
            most = peak([*audit, "--steps", STEPS, "--out", "out"], folder)
        may = SHARE * own + MORE
        beyond += most > may
        print(
            f"{name:12} alone {own >> 20:5} MiB, audited {most >> 20:5} MiB, may {int(may) >> 20:5} MiB"
            + (", TOO MUCH" if most > may else ""),
            flush=True,
        )
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
