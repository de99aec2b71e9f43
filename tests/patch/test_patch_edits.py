"""What each edit makes of hard source lines; every result goes through git."""

import ast
from dataclasses import replace

import pytest

from auditor.model import Edit, Site
from auditor.patch import Refused, SourceText, apply_edits, diff_bytes, plan
from tests.patch.marked import sides

SET = {"action": "set_keyword", "call": "DataLoader", "keyword": "num_workers", "value": "4"}
DROP = {"action": "drop_keyword", "call": "backward", "keyword": "retain_graph"}
GONE = {"action": "drop_statement", "call": "empty_cache"}
DETACH = {"action": "detach"}
ANOMALY = {"action": "rename_call", "call": "detect_anomaly", "value": "set_detect_anomaly(False)"}

# name: (what goes and what comes, edit)
# fmt: off
MADE = {
    # set_keyword: the style of the call is kept
    "one line": ("d = DataLoader(ds, 8{+, num_workers=4+})\n", SET),
    "no arguments": ("d = DataLoader({+num_workers=4+})\n", SET),
    "no arguments but a comment": ("d = DataLoader({+num_workers=4+}  # none\n)\n", SET),
    "replaces": ("d = DataLoader(ds, num_workers=[-0-]{+4+}, x=1)\n", SET),
    "replaces in parentheses": ("d = DataLoader(ds, num_workers=([-0-]{+4+}))\n", SET),
    "trailing comma on one line": ("d = DataLoader(ds, 8,{+ num_workers=4,+})\n", SET),
    "own lines": ("d = DataLoader(\n    ds,\n    batch_size=8,\n{+    num_workers=4,\n+})\n", SET),
    "own lines without trailing comma": ("d = DataLoader(\n    ds,\n    batch_size=8{+,\n    num_workers=4+}\n)\n", SET),
    "hanging": ("d = DataLoader(ds,\n               shuffle=True{+,\n               num_workers=4+})\n", SET),
    "black's middle style": ("d = DataLoader(\n    ds, batch_size=8{+, num_workers=4+}\n)\n", SET),
    "comment, with a comma": ("d = DataLoader(ds, batch_size=8{+, num_workers=4+}  # (note, well\n)\n", SET),
    "comments on own lines": (
        "d = DataLoader(\n    ds,  # data\n    8{+,+}  # batch{+\n    num_workers=4+}\n    # end\n)\n", SET),
    "tabs": ("if 1:\n\td = DataLoader(ds,\n\t\tbatch_size=8,{+\n\t\tnum_workers=4,+})\n", SET | {"line": 2}),
    "parentheses around the last argument": ("d = DataLoader((ds), (8){+, num_workers=4+})\n", SET),
    "starred": ("d = DataLoader(*args{+, num_workers=4+})\n", SET),
    "lambda": ("d = DataLoader(ds, collate_fn=lambda a, b=(1, 2): [a, b]{+, num_workers=4+})\n", SET),
    "call inside a lambda": ("f = lambda a, b: DataLoader(a, b{+, num_workers=4+})\n", SET),
    "generator in parentheses": ("d = DataLoader((x for x in y){+, num_workers=4+})\n", SET),
    "f-string beside it": ("d = DataLoader(f'{a!r:>{w}}, {b[\"c\"]}', name=f'{{,'{+, num_workers=4+})\n", SET),
    "strings that look like code": ("d = DataLoader(\"a, b)\", \"\"\"\n# ) ,\n\"\"\", '\\''{+, num_workers=4+})\n", SET),
    "walrus": ("if (d := DataLoader(n := 3{+, num_workers=4+})): pass\n", SET),
    "decorator": ("@wrap(DataLoader(a{+, num_workers=4+}))\ndef f(): ...\n", SET),
    "backslash": ("d = \\\n  DataLoader(ds, \\\n  8{+,\n  num_workers=4+})\n", SET | {"line": 2}),
    "nested calls of one name": ("d = DataLoader(\n    DataLoader(ds{+, num_workers=4+}),\n    8,\n)\n", SET | {"line": 2}),
    "line inside a call": ("d = DataLoader(\n  ds,\n  8,\n{+  num_workers=4,\n+})\n", SET | {"line": 3}),
    "name on a later line": ("d = (torch\n  .utils.data\n  .DataLoader(ds{+, num_workers=4+}))\n", SET | {"line": 3}),
    "callee in parentheses": ("d = (data.DataLoader\n)(ds{+, num_workers=4+})\n", SET),
    "twice alike": ("a, b = DataLoader(x{+, num_workers=4+}), DataLoader(x{+, num_workers=4+})\n", SET),
    "unicode before": ("s = 'é漢字😀'; d = DataLoader('ß'{+, num_workers=4+})\n", SET),
    "form feed": ("x = 1\n\x0c\n\x0cd = DataLoader(ds{+, num_workers=4+})\n", SET | {"line": 3}),
    "unicode line separators": ("s = '\x85\u2028\x1c'\nd = DataLoader(ds{+, num_workers=4+})\n", SET | {"line": 2}),
    "no newline at the end": ("x = 1\nd = DataLoader(ds{+, num_workers=4+})", SET | {"line": 2}),
    # drop_keyword
    "only one": ("loss.backward([-retain_graph=True-])\n", DROP),
    "only one with comma": ("loss.backward([-retain_graph=True, -])\n", DROP),
    "only one on its line": ("loss.backward([-\n    retain_graph=True\n-])\n", DROP),
    "first": ("loss.backward([-retain_graph=True, -]create_graph=c)\n", DROP),
    "middle": ("loss.backward(g, [-retain_graph=True, -]inputs=i)\n", DROP),
    "last": ("loss.backward(g[-, retain_graph=(True)-])\n", DROP),
    "last with comma": ("loss.backward(g,[- retain_graph=True,-])\n", DROP),
    "own line": ("loss.backward(\n    g,\n[-    retain_graph=True,  # why\n-])\n", DROP),
    "own line, no trailing comma": ("loss.backward(\n    g[-,\n    retain_graph=True-]\n)\n", DROP),
    "first on a line": ("loss.backward(\n    g,\n    [-retain_graph=True, -]inputs=i,\n)\n", DROP),
    "last on a line": ("loss.backward(g[-, retain_graph=True-],  # note\n    inputs=i)\n", DROP),
    "hanging last": ("loss.backward(g[-,\n              retain_graph=True-])\n", DROP),
    "keeps the comment of another": ("loss.backward(g[-,-]  # gradient\n              [-retain_graph=True-])\n", DROP),
    "beside **kwargs": ("loss.backward([-retain_graph=True, -]**kw)\n", DROP),
    # drop_statement
    "own line of a file": ("x = 1[-\nempty_cache()  # hi-]\ny = 2\n", GONE | {"line": 2}),
    "alone in the file": ("[-torch.cuda.empty_cache()\n-]", GONE),
    "alone in a block": ("try:\n    a()\nexcept E:\n    [-torch.cuda.empty_cache()  # hi-]{+pass+}\n", GONE | {"line": 4}),
    "inline if": ("[-if x: empty_cache()\n-]", GONE),
    "inline else": ("if x: a()\nelse: [-empty_cache()-]{+pass+}\n", GONE | {"line": 2}),
    "over several lines": ("a([-)\nempty_cache(\n  1,\n-])\nb()\n", GONE | {"line": 3}),
    "last line without newline": ("a()\n[-empty_cache()-]", GONE | {"line": 2}),
    "twice in a line": ("[-if x:\n    empty_cache(); empty_cache()\n-]", GONE | {"line": 2}),
    "awaited": ("async def f():\n    [-await empty_cache()\n    -]g()\n", GONE | {"line": 2}),
    "in finally": ("try:\n  a()\nexcept E:\n  b()\nfinally:\n  [-empty_cache()-]{+pass+}\n", GONE | {"line": 6}),
    "in a match case": ("match x:\n  case 1: [-empty_cache()-]{+pass+}\n", GONE | {"line": 2}),
    # detach
    "accumulate": ("total += loss{+.detach()+}\n", DETACH),
    "accumulate a sum": ("total += {+(+}loss * 2{+).detach()+}\n", DETACH),
    "accumulate in parentheses": ("total += (a +\n  b){+.detach()+}  # x\n", DETACH),
    "two groups": ("total += {+(+}(a + b) * (c + d){+).detach()+}\n", DETACH),
    "negative": ("total -= {+(+}-loss{+).detach()+}\n", DETACH),
    "backslash sum": ("total += {+(+}a * \\\n  b{+).detach()+}\n", DETACH),
    "walrus value": ("total += (last := loss){+.detach()+}\n", DETACH),
    "append": ("losses.append(loss{+.detach()+})\n", DETACH),
    "append by name": ("if i: self.losses.append(f(x){+.detach()+})\n", DETACH | {"call": "append"}),
    "append a list of one": ("losses += [loss{+.detach()+}]\n", DETACH),
    "item of self": ("self.x[i] = loss{+.detach()+}\n", DETACH),
    "attribute": ("self.last: Tensor = out['loss']{+.detach()+}\n", DETACH),
    "dict of one": ("hist[i] = {'loss': loss{+.detach()+}}\n", DETACH),
    # rename_call
    "keeps the prefix": ("with torch.autograd.[-detect_anomaly-]{+set_detect_anomaly+}({+False+}):\n    f()\n", ANOMALY),
    "keeps the name after as": (
        "with torch.autograd.[-detect_anomaly-]{+set_detect_anomaly+}([-check_nan=True-]{+False+}) as a, b():\n    f()\n",
        ANOMALY),
    "bare, torch imported": (
        ("import torch\nfrom torch.autograd import detect_anomaly\n"
        "with [-detect_anomaly-]{+torch.autograd.set_detect_anomaly+}({+False+}): f()\n"), ANOMALY | {"line": 3}),
    "bare, submodule imported": (
        ("import torch.autograd\nfrom torch.autograd import detect_anomaly\n"
        "with [-detect_anomaly-]{+torch.autograd.set_detect_anomaly+}({+False+}): f()\n"), ANOMALY | {"line": 3}),
    "bare, torch by another name": (
        ("import torch as th\nfrom torch.autograd import detect_anomaly\n"
        "with [-detect_anomaly-]{+th.autograd.set_detect_anomaly+}({+False+}): f()\n"), ANOMALY | {"line": 3}),
    "bare, module from torch": (
        ("from torch import autograd\nfrom torch.autograd import detect_anomaly\n"
        "with [-detect_anomaly-]{+autograd.set_detect_anomaly+}({+False+}): f()\n"), ANOMALY | {"line": 3}),
    "bare, new name imported": (
        "from torch.autograd import detect_anomaly, set_detect_anomaly\nwith [-detect_anomaly-]{+set_detect_anomaly+}({+False+}): f()\n",
        ANOMALY | {"line": 2}),
    "arguments of the same call": (
        "opt.zero_grad([-False-])\n", {"action": "rename_call", "call": "zero_grad", "value": "zero_grad()"}),
}
# fmt: on

# name: (before, edit, words of the refusal)
# fmt: off
REFUSED = {
    "before a semicolon": ("empty_cache(); x = 1\n", GONE, "shares its line"),
    "behind a semicolon": ("x = 1; empty_cache()  # hi\n", GONE, "shares its line"),
    "inline if with two": ("if x: empty_cache(); b()\n", GONE, "shares its line"),
    "line changed": ("d = DataLoader(ds)\n", SET | {"text": "d = DataLoader(other)"}, "not what it was"),
    "no such line": ("d = DataLoader(ds)\n", SET | {"line": 9}, "no line 9"),
    "no such call": ("d = Dataset(ds)\n", SET, "no call of `DataLoader`"),
    "does not parse": ("d = DataLoader(ds\n", SET, "does not parse"),
    "null byte": ("d = DataLoader(ds)\x00\n", SET, "does not parse"),
    "two on a line": ("a, b = DataLoader(x, 1), DataLoader(y, 2)\n", SET, "more than once"),
    "kwargs": ("d = DataLoader(ds, **kw)\n", SET, "**keywords"),
    "bare generator": ("d = DataLoader(x for x in y)\n", SET, "generator"),
    "same value": ("d = DataLoader(ds, num_workers=4)\n", SET, "already 4"),
    "value is no expression": ("d = DataLoader(ds)\n", SET | {"value": "4)("}, "not an expression"),
    "value brings a comment": ("d = DataLoader(ds)\n", SET | {"value": "4 # x"}, "parse"),
    "value is a bare tuple": ("d = DataLoader(ds)\n", SET | {"value": "4, 5"}, "parse"),
    "keyword is no name": ("d = DataLoader(ds)\n", SET | {"keyword": "a b"}, "not the name"),
    "keyword is reserved": ("d = DataLoader(ds)\n", SET | {"keyword": "lambda"}, "not the name"),
    "in an f-string": ("print(f'{DataLoader(ds)}')\n", SET, "f-string"),
    "in an f-string and beside it": ("print(f'{DataLoader(ds)}', DataLoader(ds))\n", SET, "f-string"),
    "not in latin-1": ("# coding: latin-1\nd = DataLoader(ds)\n", SET | {"line": 2, "value": "'漢'"}, "cannot be written"),
    "keyword absent": ("loss.backward()\n", DROP, "already has no"),
    "value is used": ("x = empty_cache()\n", GONE, "is used"),
    "chained": ("empty_cache().x()\n", GONE, "is used"),
    "conditional expression": ("empty_cache() if x else y()\n", GONE, "is used"),
    "with block": ("with empty_cache():\n    f()\n", GONE, "with block"),
    "joined by a backslash": ("x = 1; \\\nempty_cache()\n", GONE | {"line": 2}, "backslash"),
    "detached": ("total += loss.detach()\n", DETACH, "already carries no graph"),
    "a number": ("total += loss.item()\n", DETACH, "already carries no graph"),
    "half a number": ("total += loss.item() * n\n", DETACH, "plain number"),
    "constant": ("total += 1\n", DETACH, "already carries no graph"),
    "text": ("total += f'{loss}'\n", DETACH, "not an expression that can be detached"),
    "list": ("log.extend([a, b])\n", DETACH, "not known"),
    "pair": ("log.append((a, b))\n", DETACH, "several values"),
    "two names": ("self.last = out = loss\n", DETACH, "several names"),
    "nothing stored": ("print(loss, 1)\n", DETACH, "stores no value"),
    "unpacked": ("log.append(*losses)\n", DETACH, "not an expression that can be detached"),
    "negation": ("self.bad = not loss\n", DETACH, "not an expression that can be detached"),
    "import missing": (
        "from torch.autograd import detect_anomaly\nwith detect_anomaly(): f()\n", ANOMALY | {"line": 2},
        "lacks `import torch`"),
    "import not visible": ("from x import *\nwith detect_anomaly(): f()\n", ANOMALY | {"line": 2}, "not visible"),
    "new call is no name": ("a.detect_anomaly()\n", ANOMALY | {"value": "(1)"}, "does not start with a name"),
    "the same call": ("a.set_it(False)\n", {"action": "rename_call", "call": "set_it", "value": "set_it(False)"}, "already"),
}
# fmt: on


@pytest.mark.parametrize("name", MADE)
def test_edit_is_made(name, edit, repository):
    (before, after), how = sides(MADE[name][0]), MADE[name][1]
    check_made(before.encode(), edit(**how), after.encode(), repository)


def check_made(before, wanted, after, repository):
    assert apply_edits(before, [wanted]).decode("latin-1") == after.decode("latin-1")
    ast.parse(after)
    repository.put("trainer.py", before)
    repository.expect_applies(diff_bytes(before, after, "trainer.py"), {"trainer.py": after})
    try:
        again = apply_edits(after, [wanted])
    except Refused:
        again = after
    assert again == after


@pytest.mark.parametrize("name", REFUSED)
def test_edit_is_refused(name, edit):
    before, how, words = REFUSED[name]
    with pytest.raises(Refused) as refusal:
        apply_edits(before.encode("latin-1" if "latin-1" in before else "utf-8"), [edit(**how)])
    assert words in str(refusal.value)


@pytest.mark.parametrize("name", [name for name in MADE if name != "unicode line separators"])
@pytest.mark.parametrize("ending", ["\r\n", "\r"], ids=["crlf", "cr"])
def test_line_ends_are_kept(name, ending, edit, repository):
    before, after = (side.replace("\n", ending).encode() for side in sides(MADE[name][0]))
    check_made(before, edit(**MADE[name][1]), after, repository)


def test_mixed_line_ends_are_kept_and_new_lines_follow_their_neighbour(edit):
    before = b"a = 1\rd = DataLoader(\r\n    ds,\r\n)\nb = 2\r\r\nc = 3"
    after = apply_edits(before, [edit(**SET, line=2)])
    assert (
        after == b"a = 1\rd = DataLoader(\r\n    ds,\r\n    num_workers=4,\r\n)\nb = 2\r\r\nc = 3"
    )


@pytest.mark.parametrize(
    ("start", "encoding"),
    [("# -*- coding: latin-1 -*-\n", "latin-1"), (("#!/usr/bin/python\n# vim: set "
                                                  "fileencoding=cp1252 :\n"), "cp1252"),
     ("\ufeff", "utf-8"), ("\ufeff# coding: utf-8\n", "utf-8"), ("# coding: shift_jis\n# 漢\n", "shift_jis"), ("# é\n", "utf-8")],
)  # fmt: skip
def test_encodings_are_kept(start, encoding, edit, repository):
    accent = "" if encoding == "shift_jis" else "é"
    text = f"{start}s = '{accent}'; d = DataLoader(ds)"
    before, after = (
        text.encode(encoding),
        text.replace("(ds)", "(ds, num_workers=4)").encode(encoding),
    )
    check_made(before, edit(**SET, line=text.count("\n") + 1), after, repository)


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"# coding: nonsense\n", "not known"), (b"s = '\xe9'\n", "encoding"), (b"# coding: utf-7\ns = '+AGE-'\n", "byte for byte"),
     (b"# coding: rot13\n", "not valid rot13")],
)  # fmt: skip
def test_unfaithful_encodings_are_refused(raw, words):
    with pytest.raises(Refused, match=words):
        SourceText.from_bytes(raw)


def test_a_comment_that_would_become_the_coding_line_is_refused(edit):
    before = "# step\nempty_cache()\n# coding: latin-1\ns = 'é'\n".encode()
    with pytest.raises(Refused, match="exactly the intended change"):
        apply_edits(before, [edit(**GONE, line=2)])


DROPS = [
    ("f(a=1, k=2, m=3)", "f(a=1)"),
    ("f(k=2, m=3)", "f()"),
    ("f(k=2, m=3, b=1)", "f(b=1)"),
    ("f(a=1, k=2, m=3, b=1)", "f(a=1, b=1)"),
    ("f(k=2, a=1, m=3)", "f(a=1)"),
    ("f(\n  a=1,\n  k=2,\n  m=3,\n)", "f(\n  a=1,\n)"),
    ("f(\n  k=2,\n  a=1,\n  m=3\n)", "f(\n  a=1\n)"),
    ("f(a=1, k=2, m=3,\n  b=1)", "f(a=1,\n  b=1)"),
    ("f(k=2, m=3,\n  b=1)", "f(\n  b=1)"),
]


@pytest.mark.parametrize(("before", "after"), DROPS)
def test_neighbouring_keywords_are_dropped_together(before, after, edit):
    wanted = [edit("drop_keyword", call="f", keyword=name) for name in "mk"]
    assert apply_edits(before.encode(), wanted).decode() == after


STATEMENTS = [
    ("if x:\n  f()\n  g()\n", ""),
    ("if x: f(); g()\n", ""),
    ("if x:\n  f(); g()\n  h()\n", "if x:\n  h()\n"),
    ("if x:\n  h()  # h\n  f(\n  ); g()\n  i()\n", "if x:\n  h()  # h\n  i()\n"),
    ("f()\ng()\n", ""),
]


@pytest.mark.parametrize(("before", "after"), STATEMENTS)
def test_statements_of_one_block_are_dropped_together(before, after, edit):
    wanted = [
        edit("drop_statement", line=before[: before.index(name + "(")].count("\n") + 1, call=name)
        for name in "fg"
    ]
    assert apply_edits(before.encode(), wanted).decode() == after


CONFLICTS = [
    ("d = DataLoader(ds)\n", [SET, SET | {"value": "2"}], "something else of `num_workers`"),
    (
        "d = DataLoader(ds, num_workers=2)\n",
        [SET, SET | {"action": "drop_keyword"}],
        "something else of `num_workers`",
    ),
    (
        "d = DataLoader(ds, x=y)\n",
        [SET, SET | {"action": "drop_keyword", "keyword": "x"}],
        "not both",
    ),
    ("empty_cache(DataLoader(ds))\n", [SET, GONE], "overlaps"),
    ("a.detect_anomaly(DataLoader(ds))\n", [SET, ANOMALY], "overlaps"),
    ("a.detect_anomaly()\n", [ANOMALY | {"value": "other()"}, ANOMALY], "replaces the same call"),
]


@pytest.mark.parametrize(("before", "wanted", "words"), CONFLICTS)
def test_conflicting_edits_are_refused(before, wanted, words, edit):
    with pytest.raises(Refused, match=words):
        apply_edits(before.encode(), [edit(**how) for how in wanted])


def test_deep_nesting_is_edited_or_refused_but_never_crashes(edit):
    deep = f"x = {'+'.join(['a'] * 3000)}\nd = DataLoader(ds)\n".encode()
    try:
        after = apply_edits(deep, [edit(**SET, line=2)])
    except Refused:  # some Pythons cannot parse it
        return
    assert after == deep.replace(b"(ds)", b"(ds, num_workers=4)")


def test_a_span_says_which_of_several_calls_is_meant():
    text = "x, y = x.to(device), y.to(device).to(dtype)\n"
    site = Site("t.py", 1, "", text.strip())
    spans = {(1, 1, 7, 19): "x", (1, 1, 21, 33): "y"}
    edits = [
        Edit(site, "set_keyword", "to", "non_blocking", "True", safe=True, span=span)
        for span in spans
    ]
    planned = plan(edits, {"t.py": text.encode()}.get)
    assert planned.refused == ()
    (file,) = planned.files
    assert (
        file.after
        == b"x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True).to(dtype)\n"
    )
    refused = plan([replace(edits[0], span=None)], {"t.py": text.encode()}.get).refused
    assert "more than once" in refused[0][1]
    moved = plan([replace(edits[0], span=(1, 1, 8, 20))], {"t.py": text.encode()}.get).refused
    assert "more than once" in moved[0][1]
