"""What the patches of the rules about torch.compile do to the programs that they are for."""

import functools

from auditor.rules.comp.comp001_graph_break import GraphBreak

from auditor.patch import apply_edits
from tests.inprocess import judge
from tests.rules.test_rules import load

PRINTING = """
import torch

net = torch.nn.Linear(4, 4)

@torch.compile(backend="eager")
def forward(x):
    h = net(x)
    print(end="")
    return h.relu()

def step():
    forward(torch.ones(2, 4)).sum().backward()
"""


def test_the_patch_of_a_print_takes_the_break_away(tmp_path):
    def found(text, name):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        make = functools.partial(lambda path: load(path).step, file)
        findings, (verdict,) = judge(tmp_path / name, make, (GraphBreak,), roots=[file])
        assert verdict.status == ("found" if findings else "clean")
        return findings

    (before,) = found(PRINTING, "printing")
    (edit,) = GraphBreak().remedy(before).edits
    assert not edit.safe
    patched = apply_edits(PRINTING.encode(), [edit]).decode()
    assert "if not torch.compiler.is_compiling():\n        print" in patched
    assert found(patched, "patched") == []
