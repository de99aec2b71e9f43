"""What a call is given as a keyword: the expression, what it came to, and the line that set it."""

from dataclasses import replace

import pytest

from auditor.evidence.source.call_arguments import given
from auditor.evidence.source.config_values import Configs, Setting
from auditor.evidence.source.files import Source, span_of
from auditor.model import Site

CALL = "x = batch.to(device, non_blocking={})\n"


def at(text: str, *, keyword="non_blocking", call="to", ran=False, configs=()):
    """What the last line's call is given."""
    texts, rows = {"t.py": text}, text.rstrip("\n").split("\n")
    line = max(number for number, row in enumerate(rows, 1) if f"{call}(" in row)
    return given(Source(texts), Configs(tuple(configs)), Site("t.py", line), call, keyword, ran=ran)


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


def test_a_constant_that_decides_more_is_edited_but_not_called_safe():
    text = "gpu = False\nif gpu:\n    model.cuda()\n" + CALL.format("gpu")
    (edit,) = at(text).edits("True", safe=True, reason="r")
    assert edit.site.line == 1 and not edit.safe and "what else reads `gpu`" in edit.reason
    alone = "pin = False\n" + CALL.format("pin")
    assert at(alone).edits("True", safe=True, reason="r")[0].safe


ATTRIBUTE = CALL.format("c.fast")
OPTION = CALL.format("args.fast")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def step():\n    fast: bool = f()\n    " + CALL.format("fast"), 2),
        ("fast: bool\n" + CALL.format("fast"), 1),
        ("a = fast = f()\n" + CALL.format("fast"), 1),
        ("fast += f()\n" + CALL.format("fast"), 1),
        ("b = f()\na = b\n" + CALL.format("a"), 2),
        ("fast = f()\n" + CALL.format("fast > 1"), 1),
        ("cfg.fast = f()\n" + CALL.format("cfg.fast > 1"), 1),
        ("c['fast'] = 1\n" + CALL.format("c['fast']"), None),
        ("a.fast = 1\nb.fast = 2\n" + ATTRIBUTE, None),
        ("class C:\n    fast = 1\na.fast = 1\n" + ATTRIBUTE, None),
        ("class C:\n    fast = f()\n" + ATTRIBUTE, 2),
        ("fast = f()\ndef step(fast=1):\n    " + CALL.format("fast"), None),
        ("def step(fast):\n    " + CALL.format("fast") + "step(f())\n", None),
        ("p.add_argument('--fast')\n" + OPTION, 1),
        ("p.add_argument('--fast')\np.add_argument('--fast')\n" + OPTION, None),
        ("p.add_argument('--slow')\n" + OPTION, None),
        ("p.add('--fast')\n" + OPTION, None),
    ],
)
def test_the_only_line_that_sets_a_name(text, line):
    found = at(text)
    assert (found.set_at.line if found.set_at is not None else None) == line, found


def test_a_setting_that_stands_twice_is_not_certain():
    def setting(line, *where):
        return Setting(Site("c.yaml", line, "", ""), where, False)

    text = CALL.format("cfg.fast")
    assert at(text, configs=[setting(1, "fast")]).set_at.line == 1
    assert at(text, configs=[setting(1, "a", "fast"), setting(2, "fast", "a")]).set_at.line == 1
    assert at(text, configs=[setting(1, "fast"), setting(2, "a", "fast")]).set_at is None
    assert at(text, configs=[setting(1, "fast", "a")]).set_at is None
    assert at("fast = f()\n" + text, configs=[setting(1, "fast")]).set_at is None


@pytest.mark.parametrize(
    ("call", "keyword", "text", "written"),
    [
        ("cuda", "non_blocking", "x.cuda(0, fast)\n", "fast"),
        ("cuda", "non_blocking", "x.cuda(fast)\n", ""),
        ("cuda", "non_blocking", "x.cuda(*fast, fast)\n", ""),
        ("cuda", "non_blocking", "x.cuda(0, 1, non_blocking=fast)\n", "fast"),
        ("zero_grad", "set_to_none", "o.zero_grad(fast)\n", "fast"),
        ("backward", "retain_graph", "l.backward(g, fast)\n", "fast"),
        ("backward", "retain_graph", "l.backward(fast)\n", ""),
        ("set_detect_anomaly", "mode", "t.set_detect_anomaly(fast)\n", "fast"),
        ("to", "non_blocking", "x.to(0, fast)\n", ""),
        ("to", "non_blocking", "x.to(0, blocking=fast)\n", ""),
        ("to", "non_blocking", "x.to(0); y.to(1, non_blocking=fast)\n", "fast"),
    ],
)
def test_keywords_that_may_be_given_by_position(call, keyword, text, written):
    found = at(text, call=call, keyword=keyword)
    assert found.written == written
    assert found.positional is (bool(written) and f"{keyword}=" not in text)


def test_of_several_calls_the_one_at_its_place_is_meant():
    source = Source({"t.py": "x.to(0, non_blocking=a); y.to(1, non_blocking=b)\n"})
    calls = source.calls_at(Site("t.py", 1))
    spans = sorted(span_of(node) for node in calls)

    def written(span):
        site = Site("t.py", 1)
        return given(source, Configs(), site, "to", "non_blocking", ran=False, span=span).written

    assert [written(span) for span in spans] == ["a", "b"]
    assert written(None) == "a"


def test_without_a_line_nothing_is_edited():
    found = given(Source(), Configs(), None, "to", "non_blocking", ran=False)
    assert (found.home, found.refused, found.edits("True", reason="r")) == (None, None, ())


@pytest.mark.parametrize(
    ("compared", "why"),
    [
        ('device == "cuda"', True),
        ('"cuda" == device', True),
        ('self.my_device == "cuda"', True),
        ('DEVICE == "cuda"', True),
        ('device == "cuda" == x', False),
        ("device == device", False),
        ("device == 3", False),
        ('device is "cuda"', False),
        ('devices == "cuda"', False),
        ('device.type == "cuda"', False),
        ('name == "cuda"', False),
        ('device != "cuda"', False),
        ('device == "mps"', False),
    ],
)
@pytest.mark.parametrize("ran", [False, True, None])
def test_which_comparison_is_explained(compared, why, ran):
    found = at(f"fast = {compared}\n" + CALL.format("fast"), ran=ran)
    said = 'is False for torch.device("cuda") and for "cuda:0"'
    assert (said in found.advice) is bool(found.why) is (why and ran is False)


@pytest.mark.parametrize(("length", "cut"), [(100, False), (101, True)])
def test_a_line_is_cut_at_a_hundred_characters(length, cut):
    line = "fast = f(" + "a" * (length - 10) + ")"
    where = at(line + "\n" + CALL.format("fast")).where
    assert len(line) == length
    assert where.endswith("...`") is cut
    assert where == f"set at t.py:1: `{line[:100]}{'...' * cut}`"


def test_a_place_without_text():
    found = replace(at("fast = f()\n" + CALL.format("fast")), set_at=Site("t.py", 1))
    assert found.where == "set at t.py:1"
