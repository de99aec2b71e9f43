"""States that are kept: does the program bring them back?"""

import textwrap

import pytest
from auditor.rules.ckpt.resuming import brought_back

from auditor.evidence.source.files import Source
from auditor.model import Site

LATER = """
def main():
    best_state = None
    for epoch in range(9):
        train()
        if loss < least:
            best_state = {kept}
    {use}
"""
IN_TURN = """
def main():
    state = None
    for epoch in range(9):
        train()
        if loss < least:
            state = {kept}
        {use}
"""
ALWAYS = """
def main():
    for epoch in range(9):
        train()
        state = {kept}
    {use}
"""
AT_ONCE = """
def main():
    for epoch in range(9):
        train()
        if loss < least:
            state = {kept}
            {use}
"""
BEFORE_THE_LOOP = """
def main():
    state = {kept}
    for epoch in range(9):
        {use}
        train()
"""
ATTRIBUTE = """
class Stopper:
    def save(self, model):
        self.best_state = {kept}

    def restore(self, model):
        {use}
"""
NEVER_CHOSEN = """
class Keeper:
    def save(self, model):
        self.last = {kept}

    def restore(self, model):
        {use}
"""
OTHER_FUNCTION = """
def one():
    if loss < least:
        best = {kept}

def other(best):
    {use}
"""
SHARED = """
def one():
    global best
    if loss < least:
        best = {kept}

def other():
    {use}
"""
TAKEN = "model.state_dict()"


@pytest.mark.parametrize(
    ("form", "kept", "use", "found"),
    [
        (LATER, TAKEN, "model.load_state_dict(best_state)", True),
        (LATER, "dict(model.state_dict())", "model.load_state_dict(best_state)", True),
        (LATER, "model.state_dict().copy()", "self.model.load_state_dict(best_state)", True),
        (LATER, "{'m': net.model.state_dict()}", "model.load_state_dict(best_state['m'])", True),
        (LATER, "{k: v for k, v in model.state_dict().items()}", "return best_state, 1", True),
        (LATER, TAKEN, "torch.save(best_state, path)", True),
        (LATER, TAKEN, "other.load_state_dict(best_state)", False),
        (LATER, TAKEN, "print(best_state)", False),
        (LATER, "{k: v.cpu() for k, v in model.state_dict().items()}", "return best_state", False),
        (IN_TURN, TAKEN, "model.load_state_dict(state)", True),
        (IN_TURN, TAKEN, "torch.save(state, path)", False),
        (ALWAYS, TAKEN, "model.load_state_dict(state)", False),
        (AT_ONCE, TAKEN, "model.load_state_dict(state)", False),
        (BEFORE_THE_LOOP, TAKEN, "model.load_state_dict(state)", True),
        (ATTRIBUTE, TAKEN, "model.load_state_dict(self.best_state)", True),
        (ATTRIBUTE, TAKEN, "model.load_state_dict(best_state)", False),
        (NEVER_CHOSEN, TAKEN, "model.load_state_dict(self.last)", False),
        (OTHER_FUNCTION, TAKEN, "model.load_state_dict(best)", False),
        (SHARED, TAKEN, "model.load_state_dict(best)", True),
    ],
)
def test_what_is_brought_back(form, kept, use, found):
    text = textwrap.dedent(form).format(kept=kept, use=use)
    line = next(n for n, said in enumerate(text.split("\n"), 1) if kept in said)
    back = brought_back(Source({"trainer.py": text}), Site("trainer.py", line))
    lines = [n for n, said in enumerate(text.split("\n"), 1) if use in said]
    assert [back.line] == lines if found else back is None
