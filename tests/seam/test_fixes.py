"""From a run to a patch: what ``audit run`` proposes, ``audit fix`` makes, on files as users write them."""

from __future__ import annotations

import subprocess
import sys

LOGGING_SCRIPT = """
import torch

model = torch.nn.Linear(8, 1)
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


train(torch.ones(100, 4, 8))
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
    done = audit("run", "train.py", "--steps", "12", "--device", "cpu", "--select", "SYNC001", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    subprocess.run(["git", "apply", "--check", str(out / "fixes.patch")], cwd=tmp_path, check=True)
    assert audit("fix", "out", "--apply", cwd=tmp_path).returncode == 0
    assert script.read_text() == LOGS_LESS
    script.write_text(LOGGING_SCRIPT)
    assert audit("fix", "out", "--apply", "--unsafe", cwd=tmp_path).returncode == 0
    assert script.read_text() == LOGS_LESS.replace("running += loss.item()", "running += loss.detach()")
    assert subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True).stdout.startswith("step 0: ")
