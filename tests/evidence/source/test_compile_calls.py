"""What a line does with the result of torch.compile."""

import pytest

from auditor.evidence.source.compile_calls import CompileCall, call_past, compile_call
from auditor.evidence.source.files import Source
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
    wanted = [False, True, True, True, False]
    assert [call(text, line) is not None for line in range(1, 6)] == wanted


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fast = torch.compile(net)\ny = net(x)\n", 2),
        ("torch.compile(self.net)\ny = self.net(x) + self.net(z)\n", 2),
        ("net.compile()\n\ny = net.forward(x)\n", 3),
        ("self.net.compile(mode='x')\ny = model.net.forward(x)\n", 2),
        ("fast = torch.compile(net)\ny = fast(x)\n", None),
        ("fast = torch.compile(net)\nnet(x)\nnet(x)\n", None),
        ("net.compile()\ny = net(x)\n", None),
        ("net.compile()\ny = super().forward(x)\n", None),
        ("fast = torch.compile(make())\nmake()(x)\n", None),
        ("fast = torch.compile(lambda x: net(x))\nnet(x)\n", None),
    ],
)
def test_the_one_line_that_calls_past_the_compiler(text, line):
    found = call_past(Source({"a.py": text}), Site("a.py", 1))
    assert (found and found.line) == line
