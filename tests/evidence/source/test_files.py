"""What a line of the user's source says."""

import ast

import pytest

from auditor.evidence.source.files import Source, Span
from auditor.model import Site


def source(text, **more):
    return Source({"a.py": text, **{name.replace("_", "."): each for name, each in more.items()}})


def site(line):
    return Site("a.py", line)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span(1, 1, 0, 1), "x"),
        (Span(2, 2, 4, 7), "é="),  # columns are bytes of UTF-8
        (Span(2, 3, 0, 1), ""),
        (Span(0, 0, 0, 1), ""),
        (Span(3, 3, 0, 1), "z"),
        (Span(4, 4, 0, 1), ""),
    ],
)
def test_an_excerpt_lies_on_one_line(span, text):
    assert source("x\nya\x0cbé=1\nz").excerpt("a.py", span) == text
    assert source("x").excerpt("b.py", span) == ""


def test_the_first_call_of_all_files():
    one = source("x = 1\ng()\n", b_py="\nf(); g()\n", c_py="f()\n")
    assert one.first_call("f") == Site("b.py", 2, "", "f(); g()")
    assert one.first_call("g").file == "a.py"
    assert source("def h(): f()\nf()\n").first_call("f").line == 1
    assert source("x = 1\nf = 2\n").first_call("f") is None


@pytest.mark.parametrize(
    ("texts", "more", "line"),
    [
        (("f(a=1)", ""), {}, 1),
        (("f(a=1)\nf()", ""), {}, None),
        (("f(a=1); f()", ""), {}, 1),
        (("f(a=1)", "f()"), {}, None),
        (("f(a=1)", ""), {"given": "a"}, 1),
        (("f(a=1)", ""), {"given": "b"}, None),
        (("f(a=1)", ""), {"lacking": "b"}, 1),
        (("f(a=1)", ""), {"lacking": "a"}, None),
        (("f(a=1, b=2)", ""), {"given": "a", "lacking": "b"}, None),
        (("g()", ""), {}, None),
    ],
)
def test_the_only_call_of_all_files(texts, more, line):
    found = source(texts[0], b_py=texts[1]).only_call("f", **more)
    assert (found.line if found is not None else None) == line


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("f(a=True)", (1, "f")),
        ("\ng.f(a=x > 1)", (2, "f")),
        ("f(a=False)", None),
        ("f(a=1)", None),
        ("f(a=True)\nf(a=True)", None),
        ("f(a=True)\nf(a=False)", (1, "f")),
        ("f(b=True)", None),
    ],
)
def test_the_only_place_that_asks_for_something(text, asked):
    found = source(text).only_asked("a")
    assert (None if found is None else (found[0].line, found[1])) == asked


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        ("torch.backends.cudnn.benchmark = True", True, 1),
        ("torch.backends.cudnn.benchmark = True", False, None),
        ("cudnn.benchmark = False", False, 1),
        ("mycudnn.benchmark = True", True, None),
        ("cudnn.benchmark = True\ncudnn.benchmark = False", True, None),
        ("cudnn.benchmark = flag", True, None),
        ("cudnn.benchmark = 1", True, None),
        ("cudnn.benchmark |= True", True, None),
        ("cudnn.benchmark |= True\ncudnn.benchmark = True", True, None),
        ("benchmark = True", True, None),
        ("x = y = cudnn.benchmark = True", True, 1),
    ],
)
def test_the_only_line_that_sets_a_flag(text, value, line):
    found = source(text).only_flag("cudnn.benchmark", value=value)
    assert (found.line if found is not None else None) == line


@pytest.mark.parametrize(
    ("text", "makes"),
    [
        ("torch.zeros(3).to(d)", "zeros"),
        ("torch.ones(3).cuda()", "ones"),
        ("np.zeros(3).to(d)", ""),
        ("x.to(d)", ""),
        ("zeros(3).to(d)", ""),
        ("torch.zeros(3).to(d), y.to(d)", ""),
        ("torch.zeros(3)", ""),
        ("to(torch.zeros(3))", ""),
    ],
)
def test_what_a_line_makes_and_moves(text, makes):
    assert source(text).makes_at(site(1)) == makes


@pytest.mark.parametrize(
    ("text", "alone"),
    [("f()", True), ("x.f(1)", True), ("y = f()", False), ("g()", False), ("\nf()", False)],
)
def test_a_call_that_stands_alone(text, alone):
    assert source(text).stands_alone(site(1), "f") is alone


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("print(x)", 1, "screen"),
        ("print(\n  x\n)", 3, "screen"),
        ("print(x, file=log)", 1, "file"),
        ("writer.add_scalar('a', x)", 1, "tracker"),
        ("log(x)", 1, "screen"),
        ("compute(x)", 1, None),
        ("y = print(x)", 1, None),
        ("print(x)\nf()", 2, None),
        ("f(); print(x)", 1, "screen"),
    ],
)
def test_where_a_statement_logs_to(text, line, kind):
    assert source(text).logs_at(site(line)) == kind


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("if x: pass", True),
        ("while x: pass", True),
        ("assert x", True),
        ("y = a if x else b", True),
        ("y = x and z", True),
        ("y = not x", True),
        ("y = -x", False),
        ("y = x + 1", False),
        ("\nif x: pass", False),
    ],
)
def test_a_line_that_asks_a_value_for_its_truth(text, asks):
    assert source(text).test_at(site(1)) is asks


MOVES = """\
@decorated
def collate(rows):
    rows = rows.to(torch.float32)
    rows = rows.to()
    x = 1
    y = rows.cuda() + z.to(device)
class Data:
    def __len__(self):
        return x.cuda()
    def __getitem__(self, i):
        return torch.zeros(3, device="cuda")
class Nothing:
    pass
f = lambda x: x.to(device)
class Both:
    def __init__(self):
        self.x = x.cuda()
    def __call__(self):
        return self.x.to("cuda")
"""


@pytest.mark.parametrize(
    ("line", "move"),
    [
        (1, 6),
        (2, 6),
        (3, None),
        (7, 11),
        (8, 9),
        (10, 11),
        (11, None),
        (12, None),
        (14, 14),
        (15, 19),
    ],
)
def test_where_a_function_moves_tensors(line, move):
    assert source(MOVES).move_in_function("a.py", line) == move


ASSIGNED = """\
def step(x):
    y = x.to(d)
    z = 1
    if z:
        y = x.cuda()
    y += 1
    log(y, z)
    y = x.to(d)
log(y)
"""


@pytest.mark.parametrize(
    ("line", "wanted", "found"),
    [
        (7, lambda node: True, 6),
        (7, lambda node: "x." in ast.unparse(node), 5),
        (7, lambda node: "x.to" in ast.unparse(node), 2),
        (7, lambda node: "y = 1" in ast.unparse(node), None),
        (6, lambda node: True, None),  # it calls nothing
    ],
)
def test_the_last_line_before_that_gives_a_name_its_value(line, wanted, found):
    before = source(ASSIGNED).assigned_before(site(line), wanted)
    assert (None if before is None else before.line) == found
    assert source(ASSIGNED).assigned_before(Site("b.py", line), wanted) is None
