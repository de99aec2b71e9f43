"""What `audit verify` finds by trying in three small programs of our own, in one of which no size
is right. A Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/searched_programs.py [BUDGET]

Each is audited in a folder of its own and verified with that budget (seconds, 240).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

CLASSIFIER = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--grad-accum", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(0)
data = TensorDataset(torch.randint(0, 500, (4096, 32)), torch.randint(0, 2, (4096,)))
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
embed, head = nn.Embedding(500, 48), nn.Linear(48, 2)
body = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True), 2)
model = nn.ModuleList([embed, body, head])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for epoch in range(3):
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(head(body(embed(x)).mean(1)), y) / args.grad_accum
        loss.backward()
        if (step + 1) % args.grad_accum == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
"""
REGRESSION = """
import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

with open("config.yaml") as file:
    cfg = yaml.safe_load(file)
torch.manual_seed(7)
features = torch.randn(6400, 64)
data = TensorDataset(features, features @ torch.randn(64, 1))
loader = DataLoader(data, batch_size=cfg["batch_size"], shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(20):
    losses = []
    for i, (x, y) in enumerate(loader, start=1):
        loss = torch.nn.functional.mse_loss(model(x), y)
        (loss / cfg["accumulate"]).backward()
        losses.append(loss.item())
        if i % cfg["accumulate"] == 0 or i == len(loader):
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, sum(losses) / len(loader))
"""
IMAGES = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ACCUMULATION_STEPS = 4

class Images(Dataset):
    def __len__(self):
        return 4096
    def __getitem__(self, index):
        time.sleep(0.002)  # decoding
        return torch.full((3, 16, 16), index / 4096) + torch.randn(3, 16, 16), index % 10

batches = iter(DataLoader(Images(), batch_size=4, shuffle=True))
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

def step():
    for _ in range(ACCUMULATION_STEPS):
        images, labels = next(batches)
        (nn.functional.cross_entropy(model(images), labels) / ACCUMULATION_STEPS).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PROGRAMS = {
    "transformer, numbers on the command line": (
        {"train.py": CLASSIFIER},
        "train.py",
        ["--grad-accum", "4"],
    ),
    "perceptron, numbers in YAML": (
        {"train.py": REGRESSION, "config.yaml": "batch_size: 2\naccumulate: 16\n"},
        "train.py",
        [],
    ),
    "batch norm, slow images": ({"train.py": IMAGES}, "train.py:step", []),
}


def audit(folder: Path, *words: str) -> None:
    """Run the command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from auditor.cli.main import main; main()", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def verified(folder: Path, target: str, args: list[str], budget: str) -> dict[str, Any]:
    """The report after a search."""
    audit(
        folder,
        "run",
        target,
        "--steps",
        "20",
        "--device",
        "cpu",
        "--out",
        "out",
        "--verify",
        "--budget",
        budget,
        "--",
        *args,
    )
    report: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return report


def rows(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What was tried, and what came out."""
    for proposal in report["verification"]["proposals"]:
        curve = "; ".join(f"{label}: {value}" for label, value in proposal["curve"])
        yield f"micro-batches: {curve}", f"{_proven(proposal['verified'])}. {proposal['text']}"
    if not report["verification"]["proposals"]:
        yield from (
            (note, "nothing proposed")
            for note in report["verification"]["notes"]
            if note.startswith("batch size")
        )
    for finding in report["findings"]:
        curve = "; ".join(
            f"{label}: {value}"
            for label, value in finding["facts"]
            if label.startswith("step time by")
        )
        if curve:
            measured = finding["verified"]
            said = (
                _proven(measured) + f", {measured['note'].partition(',')[0]}"
                if measured
                else "none proven faster"
            )
            yield f"{finding['code']}: {curve}", said


def _proven(measured: dict[str, Any]) -> str:
    return "{:.2f}x faster [{:.2f}-{:.2f}]".format(
        *(1 / measured[each] for each in ("ratio", "ratio_high", "ratio_low"))
    )


def main() -> None:
    """Print the table."""
    budget = sys.argv[1] if len(sys.argv) > 1 else "240"
    print("| program | tried | came out |\n|---|---|---|")
    for name, (files, target, args) in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as where:
            for file, text in files.items():
                (Path(where) / file).write_text(text.lstrip())
            for tried, came in rows(verified(Path(where), target, args, budget)):
                print(f"| {name} | {tried} | {came} |", flush=True)


if __name__ == "__main__":
    main()
