"""``python -m tests.capture.instruments.without_a_name FOLDER NAME…``: a tiny run and rehearsal in
a torch without each name.

One process imports torch and forks for each name, so that a name costs a second and not five. With
``all`` among them it does without every one of them at once. Prints a JSON object: name -> the
probes that failed, by device; or the traceback of what came out.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from tests.capture.instruments.hidden_names import hidden

DEVICES = ("cpu", "rehearse")


def make() -> Any:
    """A step with what the probes look at: a loader, autocast, clipping, sparse gradients ..."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words = torch.nn.EmbeddingBag(8, 4, sparse=True).to(device)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).to(
        device
    )
    optimizers = torch.optim.SGD(words.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler(device)
    batches = iter(DataLoader(torch.arange(400).view(100, 4) % 8, batch_size=2))

    def step() -> None:
        batch = next(batches).to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(words(batch)).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizers[1])
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        loss.item()

    return step


def runs(folder: Path) -> dict[str, list[str]]:
    """The probes that failed on each device, in recordings of all parts."""
    from auditor.capture.probes.registry import PROBES
    from tests.inprocess import record

    parts = tuple(sorted({part for probe in PROBES for part in probe.parts} | {"copies", "leaner"}))
    failed = {}
    for device in DEVICES:
        recording = record(
            folder / device, make, parts, roots=[Path(__file__)], steps=4, device=device
        )
        assert recording.manifest["outcome"] == "completed"
        failed[device] = sorted({row["probe"] for row in recording.rows("lapses")})
    return failed


def without(name: str, names: list[str], folder: Path) -> Any:
    """What :func:`runs` gives, in a child; the traceback of what it raises."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with hidden(*(names if name == "all" else [name])):
                said = runs(folder)
        except BaseException:
            said = traceback.format_exc()[-1500:]
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text or b'"died"')


if __name__ == "__main__":
    root, names = Path(sys.argv[1]), sys.argv[2:]
    rest = [name for name in names if name != "all"]
    asked = ["all"] if "all" in names else names
    print(
        json.dumps(
            {name: without(name, rest, root / str(number)) for number, name in enumerate(asked)}
        )
    )
