"""Where a program could compile what it trains: lines that are found, and that none is guessed."""

from __future__ import annotations

import pytest

from auditor import patch
from auditor.evidence.source.files import Source
from auditor.extensions.verify.compiling import BLOCKS, WHOLE, places

HEAD = "import torch\nfrom torch import nn\n"


def written(text, part=WHOLE, **more):
    """The file as the edits of a part leave it; None where the part has none."""
    texts = {"train.py": HEAD + text, **{f"{name}.py": body for name, body in more.items()}}
    edits = places(Source(texts)).get(part)
    if edits is None:
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


BLOCK = """class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
{}        self.a = nn.Linear(n, n)
"""
REPEATS = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.h = {}\n"


@pytest.mark.parametrize(
    "made",
    [
        "nn.ModuleList([Block(4) for _ in range(3)])",
        "nn.ModuleList(Block(4) for _ in range(3))",
        "nn.Sequential(*[Block(4) for _ in range(3)])",
        "nn.ModuleDict(dict(h=nn.ModuleList([Block(4) for _ in range(3)])))",
        "torch.nn.Sequential(*(blocks.Block(4) for _ in range(3)), nn.Linear(4, 4))",
    ],
)
def test_blocks_that_are_repeated(made):
    rest = REPEATS.format(made)
    assert written(BLOCK.format("") + rest, BLOCKS) == (
        BLOCK.format("        self.compile()\n") + rest
    )


@pytest.mark.parametrize(
    "text",
    [
        BLOCK.format("") + REPEATS.format("nn.ModuleList([Block(4), Block(4)])"),
        BLOCK.format("") + REPEATS.format("[Block(4) for _ in range(3)]"),
        REPEATS.format("nn.ModuleList([Block(4) for _ in range(3)])"),
        BLOCK.format("") * 2 + REPEATS.format("nn.ModuleList([Block(4) for _ in range(3)])"),
        "class Block(nn.Module):\n    pass\n"
        + REPEATS.format("nn.ModuleList([Block(4) for _ in range(3)])"),
        BLOCK.replace("super().__init__()", "self.n = n").format("")
        + REPEATS.format("nn.ModuleList([Block(4) for _ in range(3)])"),
    ],
)
def test_blocks_that_are_not_repeated_or_not_known(text):
    assert written(text, BLOCKS) is None


def test_of_blocks_in_blocks_the_outer_ones():
    inner = BLOCK.replace("Block", "Head").format("")
    outer = BLOCK.format("").replace(
        "nn.Linear(n, n)", "nn.ModuleList([Head(4) for _ in range(2)])"
    )
    text = inner + outer + REPEATS.format("nn.ModuleList([Block(4) for _ in range(3)])")
    after = written(text, BLOCKS)
    assert after.count("self.compile()") == 1
    assert "self.compile()" in after.partition("class Block")[2]
