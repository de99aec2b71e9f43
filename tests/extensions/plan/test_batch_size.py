"""What sets the batch size: loaders, arguments, numbers in the source; and whether it obeyed."""

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.plan.batch_size import BatchSetting, found
from auditor.extensions.plan.measured import Loader
from tests.extensions.plan.made import measured

SOURCE = """# ünïcode before it
eval_batch_size = 4
BATCH = 12
steps: int = 5
batch_size = BATCH
"""


def without_loader(batch=8, **more):
    return measured(batch, 100, loaders=(), **more)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE, encoding="utf-8")
    return ["train.py"]


def test_the_loader_comes_first(source):
    setting = found(measured(8, 100), ["--batch_size=3"], source)
    assert setting.size == 8 and setting.lines == (("train.py", 30),)
    assert setting.said == "batch_size of the DataLoader at train.py:30"
    assert setting.args(("--batch_size=3",), 16) == ("--batch_size=3",) and setting.files(16) == {}


def test_a_loader_of_unknown_size_is_said():
    base = measured(8, 100, loaders=(Loader("t.py", 3, None, None, 10.0),), shapes=())
    assert "--batch names it" in found(base, [], [])


@pytest.mark.parametrize(
    ("args", "after"),
    [
        (("--batch_size=8", "--lr=1"), ("--batch_size=32", "--lr=1")),
        (("--lr", "1", "--batch-size", "8"), ("--lr", "1", "--batch-size", "32")),
        (("batch_size=8",), ("batch_size=32",)),
    ],
)
def test_an_argument_of_the_program(args, after):
    setting = found(without_loader(), args, [], "batch_size")
    assert (setting.size, setting.args(args, 32)) == (8, after)


def test_the_number_named_so(source):
    setting = found(without_loader(), [], source, "BATCH")
    assert (setting.size, setting.said) == (12, "BATCH at train.py:3")
    assert setting.files(48)["train.py"].decode() == SOURCE.replace("12", "48")
    assert setting.files(12) == {}


def test_numbers_are_not_guessed_from(source):
    assert "no DataLoader made the batches: --batch NAME" in found(without_loader(), [], source)
    assert found(without_loader(), [], source, "train.py:BATCH").size == 12


def test_a_name_that_is_not_there_is_refused(source):
    with pytest.raises(AuditProblem, match="--batch rows: no argument"):
        found(without_loader(), [], source, "rows")


def test_a_name_that_is_set_twice_is_refused(source, tmp_path):
    (tmp_path / "train.py").write_text("rows = 4\nrows = 8\n")
    with pytest.raises(AuditProblem, match="2 places set it"):
        found(without_loader(), [], source, "rows")


def test_whether_a_number_obeyed_is_seen_at_the_model():
    setting = BatchSetting(8, "BATCH", file="train.py")
    base = without_loader(8, shapes=((8, 128), (128,)))
    assert setting.obeyed(base, without_loader(16, shapes=((16, 128), (128,))), 16) == ""
    assert setting.obeyed(base, without_loader(16, shapes=((16, 90), (128,))), 16) == ""
    assert "no input of the model became larger" in setting.obeyed(base, base, 16)


def loaded(size, batch_bytes, changed=("batch",)):
    loader = Loader("train.py", 30, size, 20, batch_bytes)
    return measured(size, 100, loaders=(loader,), changed=frozenset(changed))


def test_whether_a_loader_obeyed_is_seen_at_its_batches():
    base = loaded(8, 800.0, ())
    setting = found(base, [], [])
    assert setting.obeyed(base, loaded(16, 1600.0), 16) == ""
    assert setting.obeyed(base, loaded(16, 1200.0), 16) == ""  # uneven samples
    assert setting.obeyed(base, loaded(16, 1190.0), 16) == "the loader gives no batches of 16"
    assert "(it has 20)" in setting.obeyed(base, loaded(32, 900.0), 32)
    assert "no DataLoader took" in setting.obeyed(base, loaded(16, 1600.0, ()), 16)
