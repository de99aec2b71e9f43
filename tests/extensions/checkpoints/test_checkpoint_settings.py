"""Settings of every format, read and never run."""

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.checkpoints.settings import read

PYTHON = """
import os
lr = 3e-4
max_lr: float = 0.1
CONFIG = {"optimizer": {"weight_decay": 0.01}, "warmup_steps": 100}
parser.add_argument("--learning-rate", type=float, default=1e-4)
optimizer = torch.optim.AdamW(model.parameters(), lr=-0.5)
open(os.environ["HOME"] + "/it-ran", "w")
raise SystemExit
lr_of_nothing = float("1")
"""


def values(path):
    return {each.name: each.value for each in read(path)}


def test_constants_of_a_program_that_would_end_itself(tmp_path):
    (tmp_path / "train.py").write_text(PYTHON)
    found = values(tmp_path / "train.py")
    assert found["lr"] == 3e-4 and found["max_lr"] == 0.1 and found["learning-rate"] == 1e-4
    assert (
        found["weight_decay"] == 0.01 and found["AdamW.lr"] == -0.5 and "lr_of_nothing" not in found
    )
    assert {each.key for each in read(tmp_path / "train.py")} >= {"learning_rate"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", "{"),
        ("c.toml", "a ="),
        ("c.yaml", "a: [1"),
        ("c.yaml", "a: [1\n  b: {\n"),
        ("c.yaml", "b: &b\n  c: *b\n"),
        ("c.json", "[" + "1," * 100_001 + "1]"),
        ("c.yaml", "!!python/object/apply:os.getpid []"),
        ("c.py", "def"),
        ("c.ini", ""),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, text):
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    with pytest.raises(AuditProblem, match="--config") as told:
        read(tmp_path / name)
    assert "\n" not in str(told.value)
