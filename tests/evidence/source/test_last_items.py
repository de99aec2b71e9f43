"""Which lists are read at their end alone."""

from __future__ import annotations

import pytest
from auditor.rules.mem.kept_tensors import LastItems

from auditor.evidence.source.files import Source

FILLED = """class T:
  def __init__(self):
    self.seen = []
  def step(self, x):
    self.seen.append(x)
"""


def suffice(lines: str, name: str = "self.seen[*]", **others: str) -> bool:
    texts = {"trainer.py": FILLED + lines, **{f"{key}.py": text for key, text in others.items()}}
    return LastItems(Source(texts)).suffice("trainer.py", name)


LAST = "    y = self.seen[-1]\n"


@pytest.mark.parametrize(
    "lines",
    [
        LAST,
        "    y = self.seen[-2:]\n",
        "    if self.seen:\n      y = self.seen[-1]\n",
        "    if not self.seen or x is None:\n      return\n" + LAST,
        "    y = self.seen[-1] if self.seen else x\n",
        "    y = self.seen[-1] if len(self.seen) > 1 else x\n",
        LAST + "    self.seen += [y]\n",
        LAST + "    self.seen.extend([y])\n",
    ],
)
def test_the_last_items_suffice(lines):
    assert suffice(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "    if self.seen:\n      pass\n",
        LAST + "    z = self.seen[0]\n",
        LAST + "    z = self.seen[x]\n",
        LAST + "    z = self.seen[-x]\n",
        LAST + "    z = self.seen[-3:-1]\n",
        LAST + "    z = self.seen[:-1]\n",
        LAST + "    z = self.seen[2:]\n",
        LAST + "    for z in self.seen: pass\n",
        LAST + "    z = torch.stack(self.seen)\n",
        LAST + "    return self.seen\n",
        LAST + "    z = self.seen or x\n",
        LAST + "    add = self.seen.append\n    show(add)\n",
        LAST + "    self.seen.sort()\n",
        LAST + "    z = y[self.seen]\n",
        LAST + "    z = getattr(self, 'seen')\n",
        LAST + "    z = vars(self)\n",
        LAST + "    z = self.__dict__\n",
        LAST + "  def show(self, seen):\n    pass\n",
    ],
)
def test_another_item_may_be_read(lines):
    assert not suffice(lines)


def test_an_attribute_may_be_read_in_another_file():
    assert suffice(LAST, plots="def plot(x):\n  print(x)\n")
    assert not suffice(LAST, plots="def plot(trainer):\n  print(trainer.seen)\n")
    assert not suffice(LAST, plots="def plot(:\n")


def test_a_variable_belongs_to_its_file():
    lines = "seen = []\nseen.append(1)\nprint(seen[-1])\n"
    source = Source({"a.py": lines, "b.py": "print(seen)\n"})
    assert LastItems(source).suffice("a.py", "seen[*]")
    assert not LastItems(source).suffice("b.py", "seen[*]")
    assert not LastItems(source).suffice("gone.py", "seen[*]")
