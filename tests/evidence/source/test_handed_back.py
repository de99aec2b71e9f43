"""Lists that a function is given and hands back longer."""

from __future__ import annotations

import pytest
from auditor.rules.mem.growing_lines import handed_back_at

from auditor.evidence.source.files import Source
from auditor.evidence.source.self_concatenation import Accumulated
from auditor.model import Site

TEXT = """
class Model:
    def forward(self, tokens, mems, other):
        x, kept = self.embed(tokens), []
        for layer, mem in zip(self.layers, mems):
            kept.append(torch.cat([mem, x.detach()], dim=1))
            x = layer(x, mem)
        return x, kept

def main():
    past = [torch.zeros(8, 0, 64) for _ in range(2)]
    for tokens in stream:
        logits, past = model(tokens, past, None)
        loss(logits).backward()
"""


def found(text):
    assert text.count("kept.append") == 1
    line = next(n for n, said in enumerate(text.split("\n"), 1) if "kept.append" in said)
    return handed_back_at(Source({"train.py": text}), Site("train.py", line))


def test_nothing_cuts_it():
    assert found(TEXT) == Accumulated("mems", unbounded=True)
    assert found(TEXT.replace("dim=1))", "dim=1).detach())")) == Accumulated("mems", True)
    by_name = TEXT.replace("def forward", "def run").replace("model(tok", "model.run(tok")
    assert found(by_name) == Accumulated("mems", unbounded=True)
    keyword = TEXT.replace("model(tokens, past, None)", "model(tokens, mems=past)")
    assert found(keyword) == Accumulated("mems", unbounded=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        return x", "        kept = [each[:, -64:] for each in kept]\n        return x"),
        ("        x, kept", "        mems = [each[:, -64:] for each in mems]\n        x, kept"),
        ("        loss(", "        past = [each[:, -64:] for each in past]\n        loss("),
        ("    for tokens", "    for epoch in range(3):\n        past = begin()\n    for tokens"),
    ],
)
def test_something_cuts_it_or_begins_it_anew(old, new):
    assert found(TEXT.replace(old, new, 1)) == Accumulated("mems", unbounded=False)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dim=1))", "dim=1)[:, -64:])"),
        ("torch.cat([mem, x.detach()], dim=1)", "torch.lerp(mem, x, 0.5)"),
        ("[mem, x.detach()]", "[x, x.detach()]"),
        ("zip(self.layers, mems)", "zip(self.layers, self.mems)"),
        ("return x, kept", "return x"),
        ("logits, past = model(tokens, past, None)", "logits, last = model(tokens, past, None)"),
        ("model(tokens, past, None)", "model(tokens, None, past)"),
        ("def forward", "def run"),
        ("def main():", "def main(:"),
    ],
)
def test_what_hands_nothing_back(old, new):
    assert found(TEXT.replace(old, new, 1)) is None


def test_a_line_outside_of_functions():
    assert (
        handed_back_at(Source({"train.py": "kept.append(torch.cat([a, b]))"}), Site("train.py", 1))
        is None
    )
