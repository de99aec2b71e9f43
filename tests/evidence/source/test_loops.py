"""The loop around a line."""

import pytest

from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import exhausts, joins, loop_around, loop_of_epochs
from auditor.model import Site

TEXT = """\
for i in a:
    for j in b:
        x[i, j]
    y = [z[k]
         for k in c]
    def inner():
        return x
while go:
    x = max(a, key=lambda each: each)
x
"""


@pytest.mark.parametrize(
    ("line", "head"), [(3, 2), (2, 2), (1, 1), (5, 4), (7, None), (9, 8), (10, None)]
)
def test_the_innermost_loop_of_the_same_function(line, head):
    assert loop_around(Source({"t.py": TEXT}), Site("t.py", line)) == head


@pytest.mark.parametrize(
    ("loop", "whole"),
    [
        ("for x in loader:\n    train(x)", True),
        ("for i, x in enumerate(loader, 1):\n    train(x)", True),
        ("for x in tqdm(enumerate(self.loader)):\n    train(x)", True),
        ("for x in loaders[0]:\n    def inner():\n        return x\n    train(inner)", True),
        ("for x in loader:\n    if done:\n        break", False),
        ("for x in loader:\n    for y in x:\n        break", False),
        ("for x in loader:\n    return x", False),
        ("for x in loader:\n    raise StopIteration", False),
        ("for x in islice(loader, 3):\n    train(x)", False),
        ("for x, y in zip(loader, other):\n    train(x)", False),
        ("while True:\n    train(next(it))", False),
        ("train(x for x in loader)", False),
    ],
)
def test_a_loop_that_goes_to_the_end_of_what_it_goes_over(loop, whole):
    assert exhausts(Source({"t.py": loop}), Site("t.py", 1)) is whole


def test_two_loops_on_a_line_are_not_told_apart():
    text = "for x in loader: train(x)\n"
    assert exhausts(Source({"t.py": text}), Site("t.py", 1))
    assert not exhausts(Source({"t.py": text}), Site("t.py", 2))
    assert not exhausts(Source({}), Site("t.py", 1))


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("with model.join():\n    train()", True),
        ("with open(name) as f, Join([model]):\n    train()", True),
        ("with open(os.path.join(a, b)):\n    train()", False),
        ("print(', '.join(words))", False),
    ],
)
def test_ranks_that_may_go_on_alone(text, joined):
    assert joins(Source({"t.py": text}), "t.py") is joined


EPOCHS = """\
def one(loader):
    for x in tqdm(
        loader
    ):
        train(x)
        again = iter(loader)

for fold in folds:
    for epoch in range(3):
        one(loader)
        [one(each) for each in loader]
while go:
    for x in loader:
        train(x)
for x in loader:
    train(x)
"""


@pytest.mark.parametrize(
    ("lines", "head"),
    [
        ((10, 2), 9),
        ((10, 3), 9),
        ((13,), 12),
        ((15,), None),
        ((10, 6), None),
        ((2,), None),
        ((), None),
    ],
)
def test_the_loop_whose_turns_are_epochs(lines, head):
    stack = [Site("t.py", line, "f") for line in lines]
    found = loop_of_epochs(Source({"t.py": EPOCHS}), stack)
    assert (found and (found.line, found.text)) == (
        head and (head, EPOCHS.split("\n")[head - 1].strip())
    )
