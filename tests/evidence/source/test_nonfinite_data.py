"""Which line of a dataset, a collate function or a transform can make NaN or infinities."""

from __future__ import annotations

import pytest

from auditor.evidence import Source
from auditor.evidence.source.nonfinite_data import leak

DATASET = """\
class Sensors(Dataset):
    def __init__(self, x):
        self.x = x

    def __getitem__(self, i):
        x = self.x[i]
        spread = x.std()
        x = LINE
        return torch.from_numpy(x)
"""


def line_of(text, value="nan", *, start=False):
    found = leak(Source({"a.py": text}), value, from_the_start=start)
    return found and found.site.line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(x - x.mean()) / x.std(axis=1, keepdims=True)", True),
        ("(x - x.mean()) / np.std(x)", True),
        ("(x - x.mean()) / spread", True),
        ("(x - x.min()) / (x.max() - x.min())", True),
        ("np.log(x)", True),
        ("x.log()", True),
        ("np.sqrt(x)", True),
        ("x / np.linalg.norm(x)", True),
        ("(x - x.mean()) / (x.std() + 1e-6)", False),
        ("(x - x.mean()) / np.maximum(x.std(), 1e-6)", False),
        ("(x - x.mean()) / max(x.std(), 1e-6)", False),
        ("(x - x.mean()) / (spread if spread > 0 else 1.0)", False),
        ("np.log(x + 1)", False),
        ("np.log1p(x)", False),
        ("np.log(np.clip(x, 1e-6, None))", False),
        ("x / 255.0", False),
        ("x / len(x)", False),
    ],
)
def test_an_expression_of_a_dataset(text, found):
    assert line_of(DATASET.replace("LINE", text)) == (8 if found else None)


def test_of_two_lines_none_is_named():
    text = DATASET.replace("LINE", "np.log(x) / x.std()")
    assert line_of(text) == 8
    assert line_of(text.replace("        return", "        x = np.sqrt(x)\n        return")) is None


def test_what_holds_for_all_data_would_have_been_in_the_first_batch():
    text = "class D:\n    def __init__(self, x):\n        self.x = x / x.std()\n    def __getitem__(self, i):\n        return self.x[i]\n"
    assert line_of(text) is None
    assert line_of(text, start=True) == 3


def test_a_collate_function_and_what_it_calls():
    text = "def merge(rows):\n    return scaled(rows)\ndef scaled(x):\n    return x / x.std()\nl = DataLoader(d, collate_fn=merge)\n"
    assert line_of(text) == 4
    assert line_of(text.replace("collate_fn=merge", "")) is None


def test_a_table_with_missing_values():
    text = "class T(Dataset):\n    def __init__(self):\n        frame = pd.read_csv(F)\n        frame = frame / frame.std()\n        self.x = torch.tensor(frame.values)\n    def __getitem__(self, i):\n        return self.x[i]\n"
    assert line_of(text) == 5
    assert line_of(text, "inf") is None
    assert line_of(text.replace("read_csv(F)", "read_csv(F).dropna()")) is None


def test_a_model_is_no_transform():
    text = "class M(nn.Module):\n    def __call__(self, x):\n        return x.log()\n"
    assert line_of(text) is None
    assert line_of(text.replace("(nn.Module)", "")) == 3


@pytest.mark.parametrize(("value", "line"), [("nan", 4), ("inf", None)])
def test_a_value_that_a_dataset_writes(value, line):
    text = "data[3] = float('nan')\nclass D:\n    def __getitem__(self, i):\n        x[i] = float('nan')\n        return x\n"
    assert line_of(text, value) == line
    assert line_of(text.replace("__getitem__", "other"), value) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x[1:] / x[:-1]", True),
        ("x / peak[i]", True),
        ("x / self.scale", False),
        ("x / SCALE", False),
        ("x / x.shape[0]", False),
        ("x / count", False),
    ],
)
def test_a_division_by_numbers_of_the_data(text, found):
    assert line_of(DATASET.replace("LINE", text)) == (8 if found else None)


def test_a_division_by_what_was_unpacked_counts_where_nothing_else_can_have_made_it():
    text = "def merge(rows):\n    shown, clicked = zip(*rows)\n    rate = clicked / shown\n    return rate\nl = DataLoader(d, collate_fn=merge)\n"
    assert line_of(text) == 3
    assert line_of(text.replace("return rate", "return rate / rate.std()")) == 4
    assert line_of(text.replace("return rate", "return rate / clicked")) is None
