"""Does an audit change what ``torch.compile`` makes of a Lightning and a Transformers program?

    python benchmarks/compiled_trainers.py

Runs each bare and under ``audit run``, in an environment with torch, lightning, transformers and
accelerate, and compares at steps 5 and 15 (the warm-up and the timing pass): graphs, operators in
them, breaks, and the bits of the loss or of a weight. By hand; takes about a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = """
import torch
from torch._dynamo.utils import counters

torch.manual_seed(0)

def count(step, value):
    if step in (5, 15):
        stats, breaks = counters["stats"], sum(counters["graph_break"].values())
        with open("counts.txt", "a") as file:
            print(step, stats["unique_graphs"], stats["calls_captured"], breaks, value.hex(), file=file)
"""
LIGHTNING = """
import lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    def training_step(self, batch, number):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Count(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        count(number + 1, float(outputs["loss"]))

data = DataLoader(TensorDataset(torch.randn(1600, 16)), batch_size=8)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = L.Trainer(max_steps=150, accelerator="cpu", callbacks=[Count()], **quiet)
trainer.fit(torch.compile(Model(), backend="eager"), data)
"""
TRANSFORMERS = """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback
from transformers import TrainingArguments

sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}
model = BertForSequenceClassification(BertConfig(intermediate_size=64, **sizes))
data = [{"input_ids": torch.randint(0, 100, (16,)), "labels": torch.tensor(n % 2)} for n in range(2000)]

class Count(TrainerCallback):
    def on_step_end(self, arguments, state, control, **more):
        count(state.global_step, float(model.classifier.weight.sum()))

quiet = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
compiled = {"torch_compile": True, "torch_compile_backend": "eager"}
arguments = TrainingArguments(output_dir="out", max_steps=150, **quiet, **compiled)
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Count()]).train()
"""


def main() -> int:
    """Print what was seen: 0 if bare and audited runs are alike."""
    alike = True
    for name, text in (("lightning", LIGHTNING), ("transformers", TRANSFORMERS)):
        bare = _counts(HEAD + text, [])
        audited = _counts(HEAD + text, ["-m", "auditor", "run", "--out", "audit"])
        alike &= bare == audited != []
        print(f"{name}: {'alike' if bare == audited else 'NOT ALIKE'}")
        for line in dict.fromkeys([*bare, *audited]):
            print("  step {}: {} graphs, {} operators, {} breaks, {}".format(*line.split()))
    return 0 if alike else 1


def _counts(text: str, command: list[str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(text)
        subprocess.run(
            [sys.executable, *command, "program.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        counts = Path(folder) / "counts.txt"
        return counts.read_text().splitlines()[:2] if counts.exists() else []


if __name__ == "__main__":
    sys.exit(main())
