"""Which line of a dataset, a collate function or a transform can make NaN or infinities."""

from __future__ import annotations

import pytest
from auditor.rules.num.nonfinite_data import _leaks, handed_on, leak, prepared

from auditor.evidence.source.files import Source

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


def leaks(body, head="def collate(rows, n):"):
    """Kind, line below the head, and what is said of each line of a function."""
    text = head + "\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    return [
        (each.kind, each.site.line - 1, each.each, each.weak)
        for each in _leaks(Source({"a.py": text}))
    ]


STRONG, WEAK = ("division", True, False), ("division", True, True)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("x = rows / rows.std()", [STRONG]),
        ("x /= rows.std()", [STRONG]),
        ("x *= rows.std()", []),
        ("x = rows // rows.std()", []),
        ("x = rows * rows.std()", []),
        ("x = rows / rows.mean()", []),
        ("x = rows / n", [WEAK]),
        ("x = rows / N", []),
        ("x = rows / m", []),
        ("x = rows / rows[0]", [WEAK]),
        ("x = rows / rows.shape[0]", []),
        ("x = rows / rows.size[0]", []),
        ("x = rows / x.shapes[0]", [WEAK]),
        ("a, b = rows\nx = rows / a", [WEAK]),
        ("a, b = 1, 2\nx = rows / a", []),
        ("a = rows[1]\nx = rows / a", [WEAK]),
        ("a = rows.shape[1]\nx = rows / a", []),
        ("a = f(rows)\nx = rows / a", []),
        ("a = rows.std()\nx = rows / a", [STRONG]),
        ("a = rows.std()\nb = a\nx = rows / b", [STRONG]),
        ("a = rows.std()\nb = a\nc = b\nx = rows / c", []),  # followed twice
        ("a = rows.std()[0]\nx = rows / a", [STRONG]),
        ("a = rows.std()\nx = rows / a[0]", [STRONG]),
        ("x = rows / a\na = rows.std()", []),
        ("a = rows.std()\na += 1\nx = rows / a", []),
        ("a = 1\na = rows.std()\nx = rows / a", [STRONG]),
        ("a = rows.std()\na = 1\nx = rows / a", []),
        ("a = rows.std()\na[a == 0] = 1\nx = rows / a", []),
        ("a, b = rows.std(), 1\nx = rows / a", [STRONG]),
        ("a, b = rows.std(), 1\nx = rows / b", []),
        ("a, b = 1, rows.std()\nx = rows / b", [STRONG]),
        ("self.a = rows.std()\nx = rows / self.a", [STRONG]),
        ("x = rows / (rows.max() - rows.min())", [STRONG]),
        ("x = rows / (rows.min() - rows.max())", [STRONG]),
        ("x = rows / (rows.max() * rows.min())", []),
        ("x = rows / (rows.max() - rows.mean())", []),
        ("x = rows / (high - rows.min())", []),
        ("x = rows / (rows.std() + 1)", []),
        ("x = rows / (rows.std() - 1)", []),
        ("x = rows / (rows.std() or 1)", []),
        ("x = rows / np.nan_to_num(rows.std())", []),
        ("x = rows / max(rows.std(), 1)", []),
        ("x = rows / rows.std().max()", []),
        ("x = rows / rows.max().std()", [STRONG]),
        ("x = rows / max(rows).std()", [STRONG]),
        ("x = rows / max(rows, 1).std()", []),
    ],
)
def test_what_is_divided_by(body, found):
    last = len(body.split("\n"))
    lines = [(kind, each, weak) for kind, line, each, weak in leaks(body)]
    assert lines == found
    assert all(0 < line <= last for _, line, _, _ in leaks(body))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("x = np.log(rows)", True),
        ("x = rows.log()", True),
        ("x = rows.abs().log()", True),
        ("x = torch.sqrt(rows)", True),
        ("x = math.log2(rows)", True),
        ("x = numpy.log10(rows)", True),
        ("x = log(rows)", True),
        ("x = np.exp(rows)", False),
        ("x = np.log()", False),
        ("x = log()", False),
        ("x = np.log(2)", False),
        ("x = np.log(rows + 1)", False),
        ("x = np.log(rows - 1)", True),
        ("x = rows.clip(1).log()", False),
        ("x = rows.log(1 + 2)", True),
        ("a = rows + 1\nx = np.log(a)", False),
        ("a = rows - 1\nx = np.log(a)", True),
        ("a = rows + 1\nx = np.log(a.b)", True),
        ("x = np.log(rows if n else 1)", False),
    ],
)
def test_logarithms(body, found):
    assert [kind for kind, *_ in leaks(body)] == ["logarithm"] * found


@pytest.mark.parametrize(
    ("head", "each"),
    [
        ("def collate(x):", True),
        ("async def my_collate_fn(x):", True),
        ("def scaled(x):", None),
        ("class D:\n  def __getitem__(self, x):", True),
        ("class D:\n  def __getitems__(self, x):", True),
        ("class D:\n  def __iter__(self, x):", True),
        ("class D:\n  def __call__(self, x):", True),
        ("class D(Module):\n  def __iter__(self, x):", None),
        ("class D(nn.Module):\n  def __call__(self, x):", None),
        ("class D(Sampler):\n  def __iter__(self, x):", None),
        ("class D(nn.Module):\n  def __getitem__(self, x):", True),
        ("class D:\n  def other(self, x):", None),
    ],
)
def test_which_functions_prepare_data(head, each):
    text = f"{head}\n      return x / x.std()\n"
    assert [leak.each for leak in _leaks(Source({"a.py": text}))] == [each] * (each is not None)


@pytest.mark.parametrize("word", ["collate_fn", "transform", "target_transform", "other"])
def test_what_a_dataset_is_given_prepares_too(word):
    text = f"def scaled(x):\n    return x / x.std()\nD({word}=scaled)\n"
    assert len(list(_leaks(Source({"a.py": text})))) == (word != "other")


def test_a_constructor_prepares_all_at_once():
    text = (
        "class D:\n    def __init__(self, x):\n        self.x = x / x.std()\n"
        "    def __getitem__(self, i):\n        return helper(i)\n"
        "def helper(i):\n    return i / i.std()\n"
    )
    assert sorted((each.site.line, each.each) for each in _leaks(Source({"a.py": text}))) == [
        (3, False),
        (7, True),
    ]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("torch.tensor(frame.values)", True),
        ("torch.from_numpy(df['x'].to_numpy())", True),
        ("torch.tensor(df)", True),
        ("torch.tensor(frames)", True),
        ("torch.tensor(rows)", False),
        ("torch.tensor()", False),
        ("torch.stack(frame.values)", False),
        ("torch.tensor(frame.values, dtype=torch.long)", False),
        ("torch.tensor(frame['label'].values)", False),
        ("torch.tensor(frame.pop('y').values)", False),
        ("torch.tensor(1, frame.values)", False),
    ],
)
@pytest.mark.parametrize("read", ["read_csv (F)", "read_parquet(F)", "genfromtxt(F)", "read(F)"])
def test_tables_that_are_made_to_tensors(made, found, read):
    text = f"frame = pd.{read}\nx = {made}\n"
    told = [(each.kind, each.site.line, each.each) for each in _leaks(Source({"a.py": text}))]
    assert told == [("missing", 2, True)] * (found and read != "read(F)")
    repaired = _leaks(Source({"a.py": text + "frame.dropna()\n"}))
    assert list(repaired) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("x[0] = float('nan')", True),
        ('x[0] = float("-inf")', True),
        ("x[0] = -np.inf", True),
        ("x[0] = math.nan", True),
        ("x[0] = np.nan + 1", False),
        ("x[0] = 1.0", False),
        ("x = np.nan", False),
        ("x[0] = y = np.nan", True),
        ("x = y[0] = np.nan", False),
    ],
)
def test_values_that_are_written(line, found):
    assert [kind for kind, *_ in leaks(line)] == ["written"] * found


HEAD = "def collate(x, n):\n"


@pytest.mark.parametrize(
    ("lines", "value", "found"),
    [
        (["x[0] = np.nan"], "nan", 2),
        (["x[0] = np.nan"], "inf", None),
        (["x[0] = np.inf", "x[0] = np.nan"], "inf", 2),
        (["x = x / x.std()", "x[0] = np.nan"], "nan", 2),  # what is made comes first
        (["x = x / n", "x[0] = np.nan"], "nan", 3),  # and any division last
        (["x = x / n"], "nan", 2),
        (["x = x / n", "x = x / x.std()"], "nan", 3),
        (["x = x / n", "x = 1 / n"], "nan", None),
        (["x = x / x.std() / x.std()"], "nan", 2),
    ],
)
def test_which_of_several_lines_is_named(lines, value, found):
    assert line_of(HEAD + "".join(f"    {line}\n" for line in lines), value) == found


def test_missing_values_come_first_unless_a_sample_is_divided():
    read = "frame = pd.read_csv(F)\nx = torch.tensor(frame.values)\n"
    once = "class D:\n    def __init__(self, x):\n        self.x = x / x.std()\n    def __getitem__(self): pass\n"
    each = "def collate(x):\n    return x / x.std()\n"
    assert line_of(read + once, start=True) == 2
    assert line_of(read + each) is None
    assert line_of(read + each, "inf") == 4


WINDOWS = """\
class Windows(Dataset):
    def __getitem__(self, i):
        row = self.rows[i]
        return row
class Others(Dataset):
    def __getitem__(self, i):
        if i:
            return self.a
        return self.b
"""


@pytest.mark.parametrize(("dataset", "line"), [("Windows", 4), ("Others", None), ("Tensor", None)])
def test_a_dataset_hands_on_where_it_returns_in_one_place(dataset, line):
    found = handed_on(Source({"data.py": WINDOWS}), dataset)
    assert (found and found.site.line) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def table(x):\n    return np.log(x)", 2),
        ("def table(x):\n    return numpy.log10(x)", 2),
        ("def table(x):\n    return np.log(x + 1e-6)", None),
        ("def table(x):\n    return np.log1p(x)", None),
        ("def table(x):\n    return torch.log(x)", None),
        ("def table(x):\n    a = np.log(x)\n    return np.log(a)", None),
    ],
)
def test_one_logarithm_of_numpys_can_have_made_it(text, line):
    found = prepared(Source({"data.py": text}))
    assert (found and found.site.line) == line
