"""Half the batch, as MEM006 estimates it from a rehearsal, against a rehearsal with half the batch.
A Markdown table.

    OMP_NUM_THREADS=2 python benchmarks/half_batch.py

The program is the GPT of predicted_memory.py with a DataLoader; each batch size is a run of ``audit
run --device rehearse``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.rules.mem.mem006_peak_by_line import PeakHolders  # noqa: E402

from auditor.evidence.table import Evidence  # noqa: E402
from auditor.recordings.folder import Recording  # noqa: E402

MIB = 2**20
BATCHES = (8, 4, 2)
TRAINER = """
import itertools
import torch
from torch import nn
from benchmarks.predicted_memory import Gpt, VOCABULARY

torch.manual_seed(0)
model = Gpt(256, 4, 128).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
texts = torch.utils.data.TensorDataset(torch.randint(0, VOCABULARY, ({batch} * 64, 128)))
batches = itertools.cycle(torch.utils.data.DataLoader(texts, batch_size={batch}))


def step():
    (x,) = next(batches)
    x = x.to("cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled={half}):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


def rehearsed(batch: int, *, half: bool) -> tuple[float, float]:
    """Peak MiB with this batch, and as estimated for half of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "trainer.py").write_text(
            TRAINER.replace("{batch}", str(batch)).replace("{half}", str(half))
        )
        words = [
            "run",
            "trainer.py:step",
            "--device",
            "rehearse",
            "--steps",
            "4",
            "--warmup",
            "2",
            "--out",
            "out",
            "--quiet",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", "from auditor.cli.main import main; main()", *words]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        (peak,) = Evidence(Recording(folder / "out" / "recording")).get(PeakHolders).devices
        ((_, told),) = peak.halved
        estimated = re.match(r"(\d+) MiB", told)
        assert estimated is not None
        return peak.allocated / MIB, float(estimated[1])


def main() -> None:
    """Print the table."""
    print("| step | rehearsed, MiB | estimated from twice the batch, MiB | difference |")
    print("|---|---|---|---|")
    for half in (False, True):
        last: float | None = None
        for batch in BATCHES:
            peak, halved = rehearsed(batch, half=half)
            if last is not None:
                told = f"batch {batch}, {'bf16 autocast' if half else 'fp32'}"
                print(f"| {told} | {peak:.1f} | {last:.0f} | {last / peak - 1:+.1%} |", flush=True)
            last = halved


if __name__ == "__main__":
    main()
