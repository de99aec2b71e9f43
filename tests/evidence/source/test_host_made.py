"""What the host makes only to move it."""

import ast

import pytest
from auditor.rules.sync.copies import host_made

from auditor.evidence.source.files import Source, span_of
from auditor.model import Site


def made(text: str):
    (move,) = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node).endswith(".to(device)")
    )
    return host_made(Source({"t.py": text}), Site("t.py", move.lineno, "", ""), span_of(move))


@pytest.mark.parametrize(
    ("text", "lines", "names", "patched", "drawn"),
    [
        ("x = torch.randn(4, 8)\ny = x.to(device)", [1], ("randn",), "randn", True),
        ("x = torch.zeros(n)\nx = x.to(device)\nprint(x)", [1], ("zeros",), "zeros", False),
        ("x = torch.arange(n)\nx = x.view(1, -1)\nx = x.to(device)", [1], ("arange",), "", False),
        ("x = (torch.rand(4) * 2 - 1).to(device)", [1], ("rand",), "", True),
        ("x = torch.rand(4) < 0.5\ny = x.to(device)", [1], ("rand",), "", True),
        ("x = torch.cat([torch.ones(2), torch.zeros(2)])\ny = x.to(device)", [1], ("ones", "zeros"), "", False),
        ("p = torch.randperm(n)\nfor i in r:\n    y = p[i : i + 4].to(device)", [1], ("randperm",), "", True),
        (
            "def noise(n):\n    return torch.randn(n, 8)\ndef step():\n    z = noise(4)\n    f(z.to(device))",
            [2],
            ("randn",),
            "",
            True,
        ),
        (
            (
                "class A:\n    def z(self):\n        return torch.rand(8)\n    def f(self):\n"
                "        return self.z().to(device)"
            ),
            [3],
            ("rand",),
            "",
            True,
        ),
        ("x = torch.ones(4)\ndevice = f()\ny = x.to(device)", [1], ("ones",), "", False),
    ],
)  # fmt: skip
def test_lines_that_make_it(text, lines, names, patched, drawn):
    found = made(text)
    assert [site.line for site in found.sites] == lines
    assert (found.names, found.patched, found.drawn) == (names, patched, drawn)


@pytest.mark.parametrize(
    "text",
    [
        "for x in loader:\n    y = x.to(device)",
        "x = batch[0]\ny = x.to(device)",
        "x = torch.from_numpy(a)\ny = x.to(device)",
        "x = torch.rand(4) * scale\ny = x.to(device)",
        "x = torch.zeros(4)\nfor i in r:\n    x[i] = rows[i]\ny = x.to(device)",
        "x = torch.zeros(4, device=device)\ny = x.to(device)",
        "x = torch.stack([torch.ones(2), rows])\ny = x.to(device)",
        "x = torch.randn(4)\nprint(x.sum())\ny = x.to(device)",
        "x = sample(4)\ny = x.to(device)",
        "def sample(n):\n    if n:\n        return torch.ones(n)\n    return rows\ny = sample(4).to(device)",
        "def sample(n):\n    return torch.ones(n)\ny = policy.sample(4).to(device)",
        "x = torch.normal(mean, std)\ny = x.to(device)",
        "y = table[torch.randint(0, 9, (4,))].to(device)",
        "y = 3 .to(device)",
    ],
)
def test_what_holds_more(text):
    assert made(text) is None
