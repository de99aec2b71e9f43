"""Lines of a text that may be to blame."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.extensions.reproduce.comparing import BLAMED, lines_to_blame

ORDERED = """
words = {each for each in corpus}
index = {word: n for n, word in enumerate(words)}  # here
for each in set(names) | extra:  # here
    print(each)
known: set[str] = set()
vocabulary = Vocabulary(known)  # here
bucket = hash(name) % 10  # here
self.seen = frozenset(rows)
rows = [row for row in self.seen.union(more)]  # here
place = id(node)  # here
"""

NO_ORDER = """
words = {each for each in corpus}
total = len(words) + max(words)
for each in sorted(words):  # only that a set was made can be said
    print(each in words)
words.update(more)
"""

GENERATORS = """
rng = np.random.default_rng()  # numpy system
seeded = np.random.default_rng(7)
own = random.Random()  # system
old = np.random.RandomState(seed=3)
name = uuid.uuid4().hex  # system
"""


def marked(text, mark):
    return [n for n, line in enumerate(text.split("\n"), 1) if re.search(rf"#.*\b{mark}\b", line)]


def test_where_a_set_becomes_a_sequence():
    assert lines_to_blame(ORDERED, "hash") == marked(ORDERED, "here")


def test_where_no_order_is_taken_the_sets_are_named():
    assert lines_to_blame(NO_ORDER, "hash") == [2]
    assert lines_to_blame("total = sorted([1])", "hash") == []


@pytest.mark.parametrize("cause", ["numpy", "system"])
def test_generators_without_a_seed(cause):
    assert lines_to_blame(GENERATORS, cause) == marked(GENERATORS, cause)


@given(st.text(), st.sampled_from(BLAMED))
def test_any_text_is_read(text, cause):
    assert lines_to_blame(text, cause) == sorted(set(lines_to_blame(text, cause)))
