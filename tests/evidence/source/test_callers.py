"""Who calls the helper that a line is in."""

import pytest
from auditor.rules.reading import callers_named

from auditor.evidence.source.files import Source
from auditor.model import Site

HELPER = "def to_cpu(x):\n    return x.cpu()\n"
FACT = "its function is called at"


def named(text: str, **files: str) -> str:
    source = Source({"t.py": text, **{f"{name}.py": each for name, each in files.items()}})
    line = next(n for n, row in enumerate(text.split("\n"), 1) if ".cpu()" in row)
    return dict(callers_named(source, Site("t.py", line))).get(FACT, "")


def test_a_helper_has_callers_in_all_files():
    other = "from t import to_cpu\nshown = to_cpu(y)\n"
    assert named(HELPER + "a = to_cpu(x)\n", other=other) == "t.py:3, other.py:2"


def test_of_many_some_are_named():
    assert named(HELPER + "to_cpu(x)\n" * 5) == "t.py:3, t.py:4, t.py:5 and 2 more"


def test_a_method_by_self():
    text = (
        "class T:\n    def show(self, x):\n        return x.cpu()\n"
        "    def step(self):\n        self.show(1)\n"
    )
    assert named(text) == "t.py:5"


@pytest.mark.parametrize(
    "text",
    [
        HELPER,  # nobody
        "x.cpu()\n",  # no function
        HELPER + "other.to_cpu(x)\n",  # another object's
        HELPER + "def to_cpu(x):\n    return x\nto_cpu(x)\n",  # which one is not known
        "def step(x):\n    x.cpu()\n    x.backward()\nstep(1)\n",  # the step itself
    ],
)
def test_nobody_is_named(text):
    assert named(text) == ""
