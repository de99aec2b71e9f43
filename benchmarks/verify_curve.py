"""How small a gain `audit verify` proves in 60 s, and how often, on a step of about 50 ms.

    OMP_NUM_THREADS=1 python benchmarks/verify_curve.py record FOLDER [RUNS]   # 40 runs: 5 minutes
    python benchmarks/verify_curve.py judge FOLDER                             # a table

``record`` makes unpatched runs of one trainer as `audit verify` does: fresh processes, a copy of the
project, fixed seeds. ``judge`` gives the experiment of `audit verify` such runs in place of new ones
(from each of them on, in the order of time, its clock moved on by what each took), the patched ones
faster by a known share, and counts what it says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import cycle, pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.evidence.table import Evidence  # noqa: E402
from auditor.extensions.verify.arms import Candidate  # noqa: E402
from auditor.extensions.verify.experiment import Experiment  # noqa: E402
from auditor.extensions.verify.trials import (  # noqa: E402
    Budget,
    Laboratory,
    Measured,
    Results,
)
from auditor.patch import PatchedFile  # noqa: E402
from auditor.recordings.folder import Recording  # noqa: E402

TRAINER = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(),
                      nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters())
x, y = torch.randn(300, 512), torch.randint(10, (300,))


def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
GAINS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)
BUDGETS = (60.0, 120.0)


def record(folder: Path, runs: int) -> None:
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "trainer.py").write_text(TRAINER)
    audit = [str(Path(sys.executable).parent / "audit"), "run", "trainer:step", "--steps", "30"]
    subprocess.run([*audit, "--device", "cpu", "--out", "../audit"], cwd=project, check=True)
    rows = []
    with Laboratory(Evidence(Recording(folder / "audit" / "recording"))) as laboratory:
        for number in range(runs):
            measured = laboratory.run()
            rows.append({"us": measured.step_us, "seconds": measured.seconds})
            print(f"run {number}: {rows[-1]}", file=sys.stderr, flush=True)
    (folder / "runs.json").write_text(json.dumps(rows))


def measured(row: dict[str, float], gain: float) -> Measured:
    step_us, files = row["us"] * (1 - gain), frozenset({"trainer.py"})
    return Measured(Results((), ()), step_us, None, None, None, files, row["seconds"])


def said(rows: list[dict[str, float]], gain: float, budget_s: float) -> tuple[str, float]:
    """What `audit verify` says of one patch that takes ``gain`` of the step, and after how long."""
    clock, left = [0.0], cycle(rows)

    def run(patched: Any = (), **_: object) -> Measured:
        row = next(left)
        clock[0] += row["seconds"]
        return measured(row, gain if patched else 0.0)

    file = PatchedFile("trainer.py", b"a", b"b", ())
    patch = Candidate((0,), ("SYNC001",), "SYNC001 trainer.py:1", (), (file,))
    laboratory: Any = SimpleNamespace(
        run=run, rehearses=False, changed=frozenset(), runs=0, steps=0
    )
    budget = Budget(budget_s, lambda: clock[0])
    experiment = Experiment(laboratory, Recording(ROOT, {}), budget, lambda words: None)
    found, _ = experiment.run([patch])
    return (found[0].status if 0 in found else "inconclusive"), clock[0]


def judge(folder: Path) -> None:
    rows = json.loads((folder / "runs.json").read_text())
    us = [row["us"] for row in rows]
    spread = sorted(abs(a / b - 1) for a, b in pairwise(us))
    print(
        f"{len(rows)} runs of a step of {median(us) / 1e3:.0f} ms, each "
        f"{median(row['seconds'] for row in rows):.1f} s; two neighbours differ by "
        f"{median(spread):.1%}, nine of ten by less than {spread[int(0.9 * len(spread))]:.1%}.\n"
    )
    print("| gain of the patch | " + " | ".join(f"proven in {b:.0f} s" for b in BUDGETS) + " |")
    print("|---|" + "---|" * len(BUDGETS))
    for gain in GAINS:
        cells = []
        for budget in BUDGETS:
            asked = [said(rows[at:] + rows[:at], gain, budget) for at in range(len(rows))]
            share = sum(status == "better" for status, _ in asked) / len(asked)
            cells.append(f"{share:.0%}, after {median(seconds for _, seconds in asked):.0f} s")
        print(f"| {gain:.0%} | " + " | ".join(cells) + " |")


def main() -> None:
    folder = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "record":
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        record(folder, int(sys.argv[3]) if len(sys.argv) > 3 else 40)
    else:
        judge(folder)


if __name__ == "__main__":
    main()
