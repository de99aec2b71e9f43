"""What a line does with the result of torch.compile."""

from __future__ import annotations

import pytest

from auditor.evidence import Source
from auditor.evidence.source.compile_calls import CompileCall, compile_call
from auditor.model import Site


def call(text, line=1):
    return compile_call(Source({"a.py": text}), Site("a.py", line))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch.compile(net)\n", CompileCall("", "net", replaces=False, read=False)),
        ("net = torch.compile(net)\n", CompileCall("net", "net", replaces=True, read=False)),
        ("net: M = torch.compile(net)\n", CompileCall("net", "net", replaces=True, read=False)),
        ("self.net = torch.compile(self.net)\n",
         CompileCall("self.net", "self.net", replaces=True, read=False)),
        ("fast = compile(net, mode='x')\n", CompileCall("fast", "net", replaces=False, read=False)),
        ("fast = compile(net)\nfast(x)\n", CompileCall("fast", "net", replaces=False, read=True)),
        ("self.fast = compile(net)\nother.fast(x)\n",
         CompileCall("self.fast", "net", replaces=False, read=True)),
        ("a = b = torch.compile(net)\n", CompileCall("", "net", replaces=False, read=False)),
        ("a[0] = torch.compile(net)\n", CompileCall("", "net", replaces=False, read=False)),
        ("net.compile()\n", CompileCall("", "", replaces=False, read=False)),
    ],
)  # fmt: skip
def test_names_and_arguments_are_read(text, expected):
    assert call(text) == expected


@pytest.mark.parametrize(
    "text",
    ["net = make(torch.compile(net))\n", "x = 1\n", "a = compile(b); c = compile(d)\n", "(\n"],
)
def test_a_line_without_one_such_call_says_nothing(text):
    assert call(text) is None


def test_a_statement_of_several_lines_is_found_by_each_of_them():
    text = "x = 1\nnet = torch.compile(\n    net,\n)\ny = 2\n"
    assert [call(text, line) is not None for line in range(1, 6)] == [
        False,
        True,
        True,
        True,
        False,
    ]
