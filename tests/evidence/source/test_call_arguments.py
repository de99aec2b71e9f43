"""What a call is given as a keyword: the expression, what it came to, and the line that set it."""

from dataclasses import replace

import pytest

from auditor.evidence.source.call_arguments import given
from auditor.evidence.source.config_values import Configs, Setting
from auditor.evidence.source.files import Source, span_of
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


# fmt: on


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
    ("text", "said"),
    [
        ("x = batch.to(device)\n", ""),
        (CALL.format("False"), "non_blocking=False"),
        ("x = nothing\ny = to(1)\n", ""),
    ],
)
def test_the_call_itself_decides_where_it_is_given_nothing_or_a_constant(text, said):
    found = at(text)
    assert (found.said, found.advice, found.refused) == (said, "", None)
    (edit,) = found.edits("True", safe=True, reason="r")
    assert (edit.action, edit.keyword, edit.site.line, edit.safe) == (
        "set_keyword",
        "non_blocking",
        found.site.line,
        True,
    )


def test_a_constant_that_decides_more_is_edited_but_not_called_safe():
    text = "gpu = False\nif gpu:\n    model.cuda()\n" + CALL.format("gpu")
    (edit,) = at(text).edits("True", safe=True, reason="r")
    assert edit.site.line == 1 and not edit.safe and "what else reads `gpu`" in edit.reason
    alone = "pin = False\n" + CALL.format("pin")
    assert at(alone).edits("True", safe=True, reason="r")[0].safe


def test_an_argument_given_by_its_position_is_seen():
    found = at("fast = f()\nx = batch.cuda(device, fast)\n", call="cuda")
    assert found.said == "non_blocking=fast, which was False (set at t.py:1: `fast = f()`)"
    constant = at("x = batch.cuda(device, False)\n", call="cuda")
    assert (
        constant.edits("True", reason="r") == ()
        and constant.refused == "`non_blocking` is given by its position"
    )


# fmt: off
FOLLOWED = {
    # the source, and the line that set it (None: not certain)
    "with a type": ("def step():\n    fast: bool = f()\n    " + CALL.format("fast"), 2),
    "with a type alone": ("fast: bool\n" + CALL.format("fast"), 1),
    "by one name of several": ("a = fast = f()\n" + CALL.format("fast"), 1),
    "added to": ("fast += f()\n" + CALL.format("fast"), 1),
    "four names": ("d = f()\nc = d\nb = c\na = b\n" + CALL.format("a"), 1),
    "five names": ("e = f()\nd = e\nc = d\nb = c\na = b\n" + CALL.format("a"), 2),
    "a name that nobody sets": ("fast = unknown\n" + CALL.format("fast"), 1),
    "a constant": ("fast = False\nother = fast\n" + CALL.format("other"), 1),
    "of an item": ("c['fast'] = 1\n" + CALL.format("c['fast']"), None),
    "a comparison": ("fast = f()\n" + CALL.format("fast > 1"), 1),
    "an attribute twice": ("a.fast = 1\nb.fast = 2\n" + CALL.format("c.fast"), None),
    "an attribute and a field": ("class C:\n    fast = 1\na.fast = 1\n" + CALL.format("c.fast"), None),
    "a field of the same class": ("class C:\n    fast = f()\n" + CALL.format("c.fast"), 2),
    "in another function": ("def f():\n    fast = 1\n" + CALL.format("fast"), None),
    "inner before outer": (
        "fast = f()\ndef outer():\n    fast = g()\n    def step():\n        fast = h()\n        " + CALL.format("fast"), 5),
    "the def's own line": ("fast = f()\ndef step(x=1): " + CALL.format("fast"), 1),
    "what a caller gives second": ("def step(a, fast):\n    " + CALL.format("fast") + "step(0, f())\n", 3),
    "of a method": ("class T:\n    def step(self, fast):\n        " + CALL.format("fast") + "t.step(f(), g())\n", 4),
    "of a class method": ("class T:\n    def step(cls, a, fast):\n        " + CALL.format("fast") + "T.step(1, f())\n", 4),
    "by name alone": ("def step(a, *, fast=None):\n    " + CALL.format("fast") + "step(1, 2)\n", 1),
    "a default": ("def step(a, fast=f()):\n    " + CALL.format("fast") + "step(1)\n", 1),
    "no default": ("def step(a, fast):\n    " + CALL.format("fast") + "step(1)\n", 1),
    "by position alone": ("def step(fast, /):\n    " + CALL.format("fast") + "step(f())\n", 3),
    "a constructor": ("class T:\n    def __init__(self, fast):\n        " + CALL.format("fast") + "T(f())\nS(g())\n", 4),
    "options twice": ("p.add_argument('--fast')\np.add_argument('--fast')\n" + CALL.format("args.fast"), None),
    "another option": ("p.add_argument('--slow')\n" + CALL.format("args.fast"), None),
    "no option": ("p.add('--fast')\n" + CALL.format("args.fast"), None),
}
# fmt: on


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_name_is_followed_to_where_it_was_set(name):
    text, line = FOLLOWED[name]
    found = at(text)
    assert (found.set_at.line if found.set_at is not None else None) == line, found


def test_a_name_of_another_file():
    more = {"u.py": "fast = f()\ndef g():\n    fast = 1\n"}
    found = at("from u import fast\n" + CALL.format("fast"), more=more)
    assert (found.set_at.file, found.set_at.line) == ("u.py", 1)
    twice = {**more, "v.py": "fast = 2\n"}
    assert at("from u import fast\n" + CALL.format("fast"), more=twice).set_at is None
    own = at("fast = g()\n" + CALL.format("fast"), more=more)
    assert own.set_at.file == "t.py"


def test_a_setting_that_stands_twice_is_not_certain():
    def setting(line, *where):
        return Setting(Site("c.yaml", line, "", ""), where, False)

    text = CALL.format("cfg.fast")
    assert at(text, configs=[setting(1, "fast")]).set_at.line == 1
    assert at(text, configs=[setting(1, "a", "fast"), setting(2, "fast", "a")]).set_at.line == 1
    assert at(text, configs=[setting(1, "fast"), setting(2, "a", "fast")]).set_at is None
    assert at(text, configs=[setting(1, "fast", "a")]).set_at is None
    assert at("fast = f()\n" + text, configs=[setting(1, "slow")]).set_at is None


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
    ],
)
@pytest.mark.parametrize("ran", [False, True, None])
def test_which_comparison_is_explained(compared, why, ran):
    found = at(f"fast = {compared}\n" + CALL.format("fast"), ran=ran)
    assert bool(found.why) is (why and ran is False)


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
