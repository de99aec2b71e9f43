"""What a call is given as a keyword: the expression, what it came to, and the line that set it."""

from __future__ import annotations

import pytest

from auditor.evidence.source.call_arguments import given
from auditor.evidence.source.config_values import Configs, Setting
from auditor.evidence.source.files import Source
from auditor.model import Site

CALL = "x = batch.to(device, non_blocking={})\n"


def at(
    text: str,
    *,
    more: dict[str, str] | None = None,
    keyword="non_blocking",
    call="to",
    ran=False,
    configs=(),
):
    """What the last line's call is given."""
    texts = {"t.py": text, **(more or {})}
    rows = text.rstrip("\n").split("\n")
    line = max(number for number, row in enumerate(rows, 1) if f"{call}(" in row)
    return given(Source(texts), Configs(tuple(configs)), Site("t.py", line), call, keyword, ran=ran)


# name: (source, line that set it)
SET = {
    "a variable of the script": ("use_cuda = f()\n" + CALL.format("use_cuda"), 1),
    "a variable of the function": (
        "fast = 1\ndef step():\n    fast = torch.cuda.device_count() > 1\n    "
        + CALL.format("fast"),
        3,
    ),
    "of the function around": (
        "def make():\n    fast = f()\n    def step():\n        " + CALL.format("fast"),
        2,
    ),
    "an attribute": (
        "class T:\n    def __init__(self):\n        self.fast = f()\n    def step(self):\n        "
        + CALL.format("self.fast"),
        3,
    ),
    "an attribute that is an argument": (
        "class T:\n    def __init__(self, fast=False):\n        self.fast = fast\n    def "
        "step(self):\n        " + CALL.format("self.fast"),
        2,
    ),
    "what a caller passes": (
        "flag = g()\ndef step(device, fast):\n    " + CALL.format("fast") + "step(device, flag)\n",
        1,
    ),
    "what a caller passes by name": (
        "def step(*, fast=True):\n    " + CALL.format("fast") + "step(fast=not f())\n",
        3,
    ),
    "an option": (
        "p.add_argument('--fast', action='store_true')\nargs = p.parse_args()\n"
        + CALL.format("args.fast"),
        1,
    ),
    "an option that is negated": (
        "p.add_argument('--slow', action='store_true')\n" + CALL.format("not args.slow"),
        1,
    ),
    "a field": ("class C:\n    fast: bool = f()\n" + CALL.format("cfg.fast"), 2),
}


@pytest.mark.parametrize("name", SET)
def test_the_line_that_set_it_is_found(name):
    text, line = SET[name]
    found = at(text)
    assert found.set_at is not None and found.set_at.line == line, found
    assert (
        f"which was False (set at t.py:{line}: `{text.split(chr(10))[line - 1].strip()}`)"
        in found.said
    )
    assert found.edits("True", reason="r") == () or found.home is not None


UNCERTAIN = {
    "set twice": "fast = f()\nfast = g()\n" + CALL.format("fast"),
    "of several names": "a = b = f()\n" + CALL.format("a > b + c"),
    "not to be seen": "from lib import fast\n" + CALL.format("fast"),
    "two callers": "def step(fast):\n    " + CALL.format("fast") + "step(f())\nstep(g())\n",
}


@pytest.mark.parametrize("name", UNCERTAIN)
def test_a_line_that_is_not_certain_is_not_named(name):
    found = at(UNCERTAIN[name])
    assert found.written and found.set_at is None
    assert found.refused == f"`non_blocking` is decided by `{found.written}`: change it there"
    assert found.edits("True", reason="r") == ()


def test_a_computed_value_is_not_edited_and_the_reason_says_where_it_is_set():
    found = at('use_cuda = device == "cuda"\n' + CALL.format("use_cuda"))
    assert found.edits("True", safe=True, reason="r") == ()
    assert found.refused == (
        "`non_blocking` is decided by `use_cuda`, which is set at t.py:1: `use_cuda = device == "
        '"cuda"`: change it there'
    )


@pytest.mark.parametrize("compared", ['device == "cuda"', '"cuda" == self.device'])
def test_a_device_compared_with_a_string_is_explained(compared):
    assert (
        'is False for torch.device("cuda") and for "cuda:0"'
        in at(f"fast = {compared}\n" + CALL.format("fast")).advice
    )


@pytest.mark.parametrize(
    "compared", ['device.type == "cuda"', 'name == "cuda"', 'device != "cuda"', 'device == "mps"']
)
def test_other_comparisons_are_not(compared):
    assert "is False for" not in at(f"fast = {compared}\n" + CALL.format("fast")).advice


@pytest.mark.parametrize(
    "text", ["x = batch.to(device)\n", CALL.format("False"), "x = nothing\ny = to(1)\n"]
)
def test_the_call_itself_decides_where_it_is_given_nothing_or_a_constant(text):
    found = at(text)
    assert (found.said, found.advice, found.refused) == ("", "", None)
    (edit,) = found.edits("True", safe=True, reason="r")
    assert (edit.action, edit.keyword, edit.site.line, edit.safe) == (
        "set_keyword",
        "non_blocking",
        found.site.line,
        True,
    )


def test_a_constant_elsewhere_is_edited_there():
    (edit,) = at("non_blocking = False\n" + CALL.format("non_blocking")).edits(
        "True", safe=True, reason="r"
    )
    assert (edit.action, edit.keyword, edit.site.line, edit.safe) == (
        "set_constant",
        "non_blocking",
        1,
        True,
    )


def test_a_constant_that_decides_more_is_edited_but_not_called_safe():
    text = "gpu = False\nif gpu:\n    model.cuda()\n" + CALL.format("gpu")
    (edit,) = at(text).edits("True", safe=True, reason="r")
    assert edit.site.line == 1 and not edit.safe and "what else reads `gpu`" in edit.reason
    alone = "pin = False\n" + CALL.format("pin")
    assert at(alone).edits("True", safe=True, reason="r")[0].safe


def test_a_configuration_file_is_named_and_edited():
    setting = Setting(Site("c.yaml", 3, "", "fast: false"), ("fast",), False)
    found = at(CALL.format("cfg.fast"), configs=[setting])
    assert found.where == "set at c.yaml:3: `fast: false`"
    assert [edit.action for edit in found.edits("True", reason="r")] == ["set_value"]


def test_an_argument_given_by_its_position_is_seen():
    found = at("fast = f()\nx = batch.cuda(device, fast)\n", call="cuda")
    assert found.said == "non_blocking=fast, which was False (set at t.py:1: `fast = f()`)"
    constant = at("x = batch.cuda(device, False)\n", call="cuda")
    assert (
        constant.edits("True", reason="r") == ()
        and constant.refused == "`non_blocking` is given by its position"
    )


def test_a_long_line_is_cut():
    assert at(f"fast = f({'a, ' * 80})\n" + CALL.format("fast")).where.endswith("...`")
