"""Where a program could compile what it trains: lines that are found, and that none is guessed."""

from __future__ import annotations

import pytest

from auditor import patch
from auditor.evidence.source.files import Source
from auditor.extensions.verify.compiling import places

HEAD = "import torch\nfrom torch import nn\n"


def written(text):
    """The file as the edits leave it; None where there are none."""
    texts = {"train.py": HEAD + text}
    edits = list(places(Source(texts)))
    if not edits:
        return None
    plan = patch.plan(edits, lambda file: texts[file].encode())
    assert plan.refused == ()
    (file,) = plan.files
    return file.after.decode().removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "m = Net()\nopt = torch.optim.Adam(m.parameters(), lr=1)\n",
            "m = Net()\nm.compile()\nopt = torch.optim.Adam(m.parameters(), lr=1)\n",
        ),
        (
            "class T:\n    def __init__(self):\n        self.opt = SGD(self.net.parameters(), 1)\n",
            (
                "class T:\n    def __init__(self):\n        self.net.compile()\n"
                "        self.opt = SGD(self.net.parameters(), 1)\n"
            ),
        ),
        (
            (
                "def main():\n    ps = [p for p in m.parameters() if p.requires_grad]\n"
                "    opt = AdamW(ps, lr=1)\n"
            ),
            (
                "def main():\n    ps = [p for p in m.parameters() if p.requires_grad]\n"
                "    m.compile()\n    opt = AdamW(ps, lr=1)\n"
            ),
        ),
        (
            "if big:\n    opt = Adam(m.parameters())\nelse:\n    opt = SGD(n.parameters(), 1)\n",
            (
                "if big:\n    m.compile()\n    opt = Adam(m.parameters())\nelse:\n"
                "    n.compile()\n    opt = SGD(n.parameters(), 1)\n"
            ),
        ),
        (
            "def configure(self):\n    return Adam(self.parameters())\n",
            "def configure(self):\n    self.compile()\n    return Adam(self.parameters())\n",
        ),
    ],
)
def test_the_line_before_the_optimizer(before, after):
    assert written(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "m = Net()\n",
        "opt = Adam(make().parameters())\n",
        "opt = Adam(ps, lr=1)\n",
        "for m in nets:\n    opts.append(Adam(m.parameters()))\n",
        "opt = Adam\n",
        "opt = Adam(list(a.parameters()) + list(b.parameters()))\n",
        "x = Adam(lr=1)\nm.parameters()\n",
        "(\n",
    ],
)
def test_no_line_is_guessed(text):
    assert written(text) is None


def test_a_module_of_two_optimizers_is_compiled_once():
    text = "a = Adam(m.parameters())\nb = SGD(m.parameters(), 1)\n"
    assert written(text) == f"m.compile()\n{text}"
