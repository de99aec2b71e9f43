"""From a run to a patch: ``audit run`` proposes, ``audit fix`` makes, on users' own files."""

import subprocess
import sys

LOGGING_SCRIPT = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(8, 1, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(batches):
    running = 0.0
    for i, x in enumerate(batches):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        running += loss.item()
        print(f"step {i}: {loss.item():.4f}",
              flush=True)
    print(f"mean {running / 100:.4f}")


train(torch.ones(100, 4, 8, device=device))
"""

LOGS_LESS = LOGGING_SCRIPT.replace(
    """        print(f"step {i}: {loss.item():.4f}",
              flush=True)
""",
    """        if i % 50 == 0:
            print(f"step {i}: {loss.item():.4f}",
                  flush=True)
""",
)


def test_a_log_is_throttled_and_a_sum_stays_on_the_device(audit, tmp_path):
    script, out = tmp_path / "train.py", tmp_path / "out"
    script.write_text(LOGGING_SCRIPT)
    done = audit("run train.py --steps 12 --select SYNC001 --out out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line.partition("  # ")[0] for line in done.stdout.splitlines()[-5:]]
    assert said == [
        "audit fix out",
        "audit fix out --apply",
        "audit fix out --unsafe",
        "audit verify out",
        "out/report.html",
    ]
    subprocess.run(["git", "apply", "--check", str(out / "fixes.patch")], cwd=tmp_path, check=True)
    assert audit("fix", "out", "--apply", cwd=tmp_path).returncode == 0
    assert script.read_text() == LOGS_LESS
    script.write_text(LOGGING_SCRIPT)
    assert audit("fix", "out", "--apply", "--unsafe", cwd=tmp_path).returncode == 0
    assert script.read_text() == LOGS_LESS.replace(
        "running += loss.item()", "running += loss.detach()"
    )
    assert subprocess.run(
        [sys.executable, str(script)], check=True, capture_output=True, text=True
    ).stdout.startswith("step 0: ")


CONFIGURED = """
import time
import torch
import yaml
from torch.utils.data import DataLoader, Dataset

with open("conf/train.yaml") as file:
    cfg = yaml.safe_load(file)


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((8,), float(index))


model = torch.nn.Linear(8, 1)
batches = iter(DataLoader(Slow(), batch_size=cfg["data"]["batch_size"], num_workers=cfg["data"]["num_workers"]))


def step():
    model(next(batches)).mean().backward()
"""

SETTINGS = "# what to train\ndata:\n  batch_size: 4  # small\n  num_workers: 0  # in the step\n"


def test_a_number_from_a_configuration_file_is_changed_there(audit, tmp_path):
    (tmp_path / "trainer.py").write_text(CONFIGURED)
    (tmp_path / "conf").mkdir()
    settings = tmp_path / "conf" / "train.yaml"
    settings.write_text(SETTINGS)
    done = audit("run trainer:step --steps 6 --device cpu --select DATA007 --out out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert audit("fix", "out", "--apply", "--unsafe", cwd=tmp_path).returncode == 0
    changed = settings.read_text()
    workers = changed.partition("num_workers: ")[2].partition(" ")[0]
    assert int(workers) > 1
    assert changed == SETTINGS.replace("num_workers: 0", f"num_workers: {workers}")
    assert (tmp_path / "trainer.py").read_text() == CONFIGURED


ON_A_GPU = """
import json
import torch
from torch.utils.data import DataLoader, TensorDataset

with open("conf.json") as file:
    cfg = json.load(file)["loader"]
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(512, 1).to(device)
loader = DataLoader(TensorDataset(torch.ones(40000, 512)), batch_size=cfg["batch"], pin_memory=cfg["pin_memory"])
batches = iter(loader)


def step():
    (x,) = next(batches)
    noise = torch.zeros(64, 512).to(device)
    model(x.to(device) + noise).mean().backward()
"""

LOADER = '{"loader": {"batch": 64,\n\t"pin_memory":  false}}'


def test_what_a_rehearsal_finds_is_patched_in_the_program_and_in_its_configuration(audit, tmp_path):
    (tmp_path / "trainer.py").write_text(ON_A_GPU)
    (tmp_path / "conf.json").write_text(LOADER)
    chosen = ("--select", "DATA003,SYNC010", "--device", "rehearse")
    done = audit("run", "trainer:step", "--steps", "6", *chosen, "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    subprocess.run(["git", "apply", "out/fixes.patch"], cwd=tmp_path, check=True)
    assert (tmp_path / "conf.json").read_text() == LOADER.replace("false", "true")
    moved = ON_A_GPU.replace("x.to(device)", "x.to(device, non_blocking=True)")
    assert (tmp_path / "trainer.py").read_text() == moved.replace(
        "(64, 512).to(device)", "(64, 512, device=device)"
    )
