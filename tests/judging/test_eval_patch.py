"""GRAPH003's patch: a function that does nothing but evaluate is decorated."""

import pytest
from auditor.rules.graph.left_out import GraphRecordedInEvaluation
from auditor.rules.graph.rows import EvalRow

from auditor.evidence.source.files import Source
from auditor.model import Site
from auditor.patch import plan
from tests.rules.asking import ask, rows

TEXT = """\
import torch


class Trainer:
    def evaluate(self, loader):
        self.model.eval()
        for x in loader:
            y = self.model(x)
        self.model.train()
        return y.argmax(1)
"""


def patched(text: str, **more: object) -> str | None:
    line = next(n for n, row in enumerate(text.split("\n"), 1) if "self.model(x)" in row)
    site = Site("t.py", line, "Trainer.evaluate", "y = self.model(x)")
    facts = {"n": 12, "steps": 12, "walked": 0, "held": False, "saved_bytes": None}
    place = EvalRow(at=0, module="Net", **facts, **more)
    tables = rows(place, sites=(site,)), Source({"t.py": text})
    (found,) = ask(GraphRecordedInEvaluation(), *tables)
    remedy = GraphRecordedInEvaluation().remedy(found)
    assert not remedy.safe
    planned = plan(remedy.edits, lambda file: text.encode())
    assert not planned.refused
    return planned.files[0].after.decode() if planned.files else None


def test_a_function_that_evaluates_is_decorated():
    wanted = TEXT.replace("    def evaluate", "    @torch.no_grad()\n    def evaluate")
    assert patched(TEXT) == wanted


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("return y", "y.sum().backward(); return y"),
        TEXT.replace("return y", "self.optimizer.step(); return y"),
        TEXT.replace("self.model.eval()", "pass"),  # it may be a step of training
        TEXT.replace("    def", "    async def"),
        TEXT[TEXT.index("        self.model.eval()") :]
        .replace("        ", "", 1)
        .replace("\n        ", "\n")
        .replace("return y.argmax(1)", "y"),
    ],
    ids=["a backward", "an optimizer", "no eval mode", "a coroutine", "no function"],
)
def test_what_does_more_is_left(text):
    assert patched(text) is None


def test_a_module_that_is_trained_is_left():
    assert patched(TEXT, mode="trained") is None
