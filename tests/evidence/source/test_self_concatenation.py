"""Which statements put a tensor behind itself, and which of these nothing cuts."""

from __future__ import annotations

import pytest

from auditor.evidence.source.files import Source
from auditor.evidence.source.self_concatenation import (
    Accumulated,
    accumulated,
    accumulated_at,
    joined_lists,
)
from auditor.model import Site


def found(text, line):
    return accumulated_at(Source({"train.py": text}), Site("train.py", line, ""))


UNBOUNDED = [
    ("bank = torch.zeros(0, 8)\nfor x in data:\n    bank = torch.cat([bank, x])\n", 3, "bank"),
    ("bank = None\ndef step():\n    global bank\n    bank = torch.cat((bank, x), 0)\n", 4, "bank"),
    ("for x in data:\n    bank = torch.cat(\n        [x, bank],\n    ).detach()\n", 3, "bank"),
    ("for x in data:\n    bank: Tensor = torch.vstack([bank, x])\n", 2, "bank"),
    (
        (
            "class M:\n    def __init__(self):\n        self.bank = torch.zeros(0)\n"
            "    def forward(self, x):\n        self.bank = torch.cat([self.bank, x.detach()])\n"
        ),
        5,
        "self.bank",
    ),
    (
        (
            "def main():\n    state = {}\n    state['f'] = x\n    for x in data:\n"
            "        state['f'] = np.concatenate([state['f'], x])\n"
        ),
        5,
        "state['f']",
    ),
]


@pytest.mark.parametrize(("text", "line", "name"), UNBOUNDED)
def test_nothing_cuts_it(text, line, name):
    assert found(text, line) == Accumulated(name, unbounded=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for x in data:\n    bank = torch.cat([bank, x])[-4096:]\n", 2),
        ("for x in data:\n    bank = torch.cat([bank, x])\n    bank = bank[-4096:]\n", 2),
        (
            (
                "for epoch in range(3):\n    bank = torch.zeros(0)\n    for x in data:\n"
                "        bank = torch.cat([bank, x])\n"
            ),
            4,
        ),
        (
            (
                "def evaluate():\n    bank = torch.zeros(0)\n    for x in data:\n"
                "        bank = torch.cat([bank, x])\n"
            ),
            4,
        ),
        (
            (
                "bank = None\ndef step():\n    bank = torch.cat([bank, x])\ndef reset():\n"
                "    global bank\n    bank = None\n"
            ),
            3,
        ),
    ],
)
def test_something_cuts_it_or_begins_it_anew(text, line):
    assert found(text, line) == Accumulated("bank", unbounded=False)


@pytest.mark.parametrize(
    "statement",
    [
        "both = torch.cat([bank, x])",
        "bank = torch.cat([banked, x])",
        "bank = torch.add(bank, x)",
        "bank.append(x)",
        "bank = bank.to(torch.cat([x, y]).device)",
        "bank += torch.cat([x, y])",
        "bank = (",
    ],
)
def test_what_puts_nothing_behind_itself(statement):
    assert found(f"{statement}\n", 1) is None


def test_another_line_is_none_of_it():
    assert found("bank = torch.cat([bank, x])\ny = 1\n", 2) is None
    assert accumulated_at(Source(), Site("gone.py", 1, "")) is None


TWO_LINES = """
class Memory(Module):
    def __init__(self):
        self.memory = None

    def forward(self, h):
        context = h if self.memory is None else torch.cat([self.memory, h], dim=1)
        self.memory = {kept}
        return context
"""


@pytest.mark.parametrize(
    ("kept", "unbounded"),
    [("context", True), ("context.detach()", True), ("context[:, -64:].detach()", None)],
)
def test_what_is_kept_under_another_name(kept, unbounded):
    told = found(TWO_LINES.strip().format(kept=kept), 6)
    assert told == (None if unbounded is None else Accumulated("self.memory", unbounded))


LIST = """
features = []

def step():
    z = model(x)
    features.append(z.detach())
    bank = torch.stack(features)
"""


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (("", ""), ["features"]),
        (("append(z.detach())", "extend(z)"), ["features"]),
        (("torch.stack(features)", "len(features)"), []),  # never joined
        (("    bank", "    del features[:-4]\n    bank"), []),
        (("    bank", "    features.pop(0)\n    bank"), []),
        (("    z =", "    features = []\n    z ="), []),
        (("features = []", "features = deque(maxlen=4)"), []),
        (("features = []", ""), []),  # who knows what it is
        (("    bank", "    if len(features) > 4:\n        features.clear()\n    bank"), []),
    ],
    ids=str,
)
def test_lists_that_are_joined_and_never_cut(change, names):
    told = list(joined_lists(Source({"train.py": LIST.strip().replace(*change, 1)})))
    assert [name for _, name in told] == names
    if names:
        assert told[0][0].text.startswith("features.")


def test_tensors_that_nothing_cuts_are_named_as_well():
    text = "bank = torch.zeros(0)\ndef step():\n    global bank\n    bank = torch.cat([bank, z])"
    ((site, name),) = accumulated(Source({"train.py": text}))
    assert (site.line, name) == (4, "bank")
    assert list(accumulated(Source({"train.py": text + "[-9:]"}))) == []
