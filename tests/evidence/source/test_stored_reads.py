"""Which uses of a kept value may read it with its gradient."""

import textwrap

import pytest

from auditor.evidence.source.files import Source
from auditor.evidence.source.stored_reads import gradient_read
from auditor.model import Site

LIST = """
kept = []
for x in data:
    kept.append(layer(x))  # STORED
    {}
"""
ATTRIBUTE = """
class Net:
    def __init__(self, shared=None):
        self.history = []
    def forward(self, x):
        self.history.append(self.layer(x))  # STORED
        return x
    def other(self, net):
        {}
"""


def read_at(text, *, watched=False, **files):
    text = textwrap.dedent(text)
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "# STORED" in line)
    source = Source({"train.py": text, **{f"{name}.py": more for name, more in files.items()}})
    found = gradient_read(source, Site("train.py", number, "", lines[number - 1]), watched=watched)
    return None if found is None else found.text


@pytest.mark.parametrize(
    "line",
    [
        "loss.backward()",
        "print(kept[-1])",
        "print(f'{sum(kept) / len(kept):.3f}')",
        "value = kept[-1].item()",
        "mean = sum(kept) / len(kept); print(mean.item()); best = float(mean)",
        "del kept[:-10]",
        "kept.pop(0)",
        "kept.clear()",
        "kept = []",
        "kept, others = [], {}",
        "if len(kept) > 10: kept = list()",
        "if kept: pass",
        "worse = kept[-1] > kept[0]",
        "numbers = torch.stack(kept).detach()",
        "kept: list = []",
        "kept = {name: [] for name in names}",
        "kept = [0.0 for _ in names]",
        "kept = dict(a=list())",
        "kept = defaultdict(list)",
        "kept = -1",
        "kept += [x]",
        "kept[0] = x",
        "kept.setdefault(1, x)",
    ],
)
def test_a_use_that_leaves_the_gradient_alone(line):
    assert read_at(LIST.format(line)) is None


@pytest.mark.parametrize(
    "line",
    [
        "head(kept[-1])",
        "kept[-1].backward()",
        "loss = loss + kept[-1].abs().mean(); loss.backward()",
        "mean = torch.stack(kept).mean(); mean.backward()",
        "for each in kept: each.backward()",
        "newest = kept[-1]; head(newest)",
        "other = kept; head(other[-1])",
        "save(kept)",
        "both = [kept, 1]; head(both)",
        "kept = shared",
        "kept, others = shared, []",
        "take = lambda: kept[-1]",
        "if head(kept): pass",
        "if kept[-1].requires_grad: pass",
        "globals()['kept'][-1].backward()",
        "def more(kept): return kept[-1]",
        "kept: list = shared",
        "kept = {name: shared for name in names}",
        "kept = [shared for _ in names]",
        "kept = dict(a=shared)",
        "kept = other = []",
        "kept = [[], shared]",
        "(kept, others), last = both, 1",
        "kept[0][1](x)",
        "kept[kept[0]] = x",
    ],
)
def test_a_use_that_may_read_it(line):
    assert read_at(LIST.format(line)) is not None


@pytest.mark.parametrize(
    "line",
    [
        "head(net.history[-1])",
        "self.history = net.shared",
        "getattr(net, 'history')",
        "Log(history=net.shared)",
        "return self.history",
    ],
)
def test_an_attribute_is_read_wherever_one_of_its_name_is(line):
    assert read_at(ATTRIBUTE.format(line)) is not None
    assert read_at(ATTRIBUTE.format("return len(self.history)"), other="x.history[0].backward()")
    assert read_at(ATTRIBUTE.format("return len(self.history)"), other="len(x.history)") is None


def test_a_variable_of_a_module_is_read_from_others():
    assert read_at(LIST.format("pass"), other="from train import kept")
    assert read_at(LIST.format("pass"), other="import train; train.kept[-1].backward()")
    assert read_at(LIST.format("pass"), other="kept = []; kept[-1].backward()") is None


def test_a_function_s_own_variable_is_another_one():
    program = """
        def train():
            kept = []
            for x in data:
                kept.append(layer(x))  # STORED
        def evaluate():
            kept = [layer(x)]
            head(kept[-1]).backward()
    """
    assert read_at(program) is None


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("self.last[i] = layer(x)", True),
        ("kept.setdefault(i, []).append(layer(x))", False),
        ("kept[i].append(layer(x))", False),
        ("kept.more(i).append(layer(x))", True),  # into what is not known
        ("take(i)[0] = layer(x)", True),
        ("print(layer(x))", True),
        ("x.kept.update(i, layer(x))", True),
    ],
)
def test_what_a_line_stores_into(line, read):
    text = f"kept = []\nfor i, x in data:\n    {line}  # STORED\nhead(y.last)\nlen(z.kept)\n"
    assert (read_at(text) is not None) is read
