"""Which call of a program made the float64 tensor that its step used."""

from __future__ import annotations

import pytest

from auditor.evidence import Source
from auditor.evidence.source.double_origin import double_origins, origin_of
from auditor.model import Site

DATASET = """\
class Rows(Dataset):
    def __init__(self, rng):
        self.x = rng.normal(size=(64, 8)).astype(np.float32)
        self.y = self.x @ rng.normal(size=(8, 1))

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        y = torch.from_numpy(self.y[i])
        return x, y
"""


def widths(text):
    found = double_origins(Source({"a.py": text}))
    return [(each.site.line, each.width) for each in found]


def test_a_dataset_whose_targets_alone_are_wide():
    assert widths(DATASET) == [(8, "wide")]


@pytest.mark.parametrize(
    ("value", "width"),
    [
        ("torch.from_numpy(np.hanning(8))", "wide"),
        ("torch.from_numpy(np.hanning(8)).to(x.device)", "wide"),
        ("torch.from_numpy(np.hanning(8)).float()", None),
        ("torch.from_numpy(np.hanning(8)).unsqueeze(0).to(torch.float32)", None),
        ("torch.from_numpy(np.hanning(8)).to(device, torch.float32)", None),
        ("torch.from_numpy(np.hanning(8).astype('float32'))", None),
        ("torch.from_numpy(np.hanning(8).astype(float))", "wide"),
        ("torch.from_numpy(np.zeros(8, dtype=np.float32))", None),
        ("torch.from_numpy(rng.integers(0, 4, 8))", None),
        ("torch.from_numpy(np.stack([1.0, 2.0]))", "wide"),
        ("torch.from_numpy(array)", "unknown"),
        ("torch.tensor(np.random.randn(8))", "wide"),
        ("torch.tensor(np.random.randn(8), dtype=torch.float32)", None),
        ("torch.tensor(frame['y'].values)", "wide"),
        ("torch.tensor(frame['y'].values, dtype=torch.float)", None),
        ("torch.tensor([1.0, 2.0])", None),
        ("torch.tensor(np.array([r.w for r in rows]))", "unknown"),
        ("torch.tensor(values)", None),
        ("torch.as_tensor(2 * np.linspace(0, 1, 8))", "wide"),
        ("torch.zeros(8, dtype=torch.float64)", "wide"),
        ("torch.zeros(8, dtype=torch.double)", "wide"),
        ("torch.zeros(8)", None),
        ("torch.set_default_dtype(torch.float64)", "wide"),
        ("torch.set_default_dtype(torch.float32)", None),
        ("np.hanning(8)", None),
    ],
)
def test_how_wide_a_tensor_becomes(value, width):
    assert widths(f"y = {value}\n# float64\n") == ([] if width is None else [(1, width)])


def test_the_name_decides_between_two():
    text = (
        "def make():\n"
        "    one = torch.from_numpy(np.ones(8))\n"
        "    two = torch.from_numpy(np.ones(8))\n"
        "    return model(x) * two\n"
        "class M:\n"
        "    def __init__(self):\n"
        "        self.window = torch.from_numpy(np.ones(8))\n"
    )
    origins = double_origins(Source({"a.py": text}))

    def found(line, said):
        site = origin_of(Site("a.py", line, "", said), origins)
        return site and site.line

    assert found(4, "return model(x) * two") == 3
    assert found(9, "out = model(x) * two") is None  # a name of another function
    assert found(9, "out = self.layer(x) * self.window") == 7
    assert found(3, "two = torch.from_numpy(np.ones(8))") is None  # the line itself


def test_without_a_name_it_is_the_only_one():
    origins = double_origins(Source({"a.py": DATASET}))
    site = origin_of(Site("b.py", 40, "", "loss = criterion(model(x), y)"), origins)
    assert site is not None
    assert (site.file, site.line) == ("a.py", 8)
    assert origin_of(Site("b.py", 40, "", "loss"), [*origins, *origins]) == site
    assert origin_of(Site("b.py", 40, "", "loss"), []) is None
