"""Calls in any layout take keywords and lose them, and no comment of a kept argument is lost."""

import ast
import io
import tokenize

from hypothesis import given
from hypothesis import strategies as st

from auditor.model import Edit, Site
from auditor.patch import apply_edits

POSITIONAL = [
    "a",
    "(b)",
    "*c",
    "f(x, k=y)",
    "lambda p, q=(1, 2): p",
    "'s, #)'",
    "[1,\n  2]",
    "x if y else z",
    "(i for i in j)",
]
KEYWORDS = ["k=1", "m=(2)", "n=[3, '4,']", "o=lambda u, v: (u, v)", "p=\\\n  5"]
OPENINGS = ["", " ", "\n    ", "  # open, (\n    ", "\n\t"]
SEPARATORS = [
    ", ",
    ",",
    ",\n    ",
    ",  # note, )\n    ",
    ",\n    # alone\n    ",
    "  # odd\n    , ",
    ",\n\n    ",
]
CLOSINGS = ["", ",", ", ", "\n", ",\n", "  # end\n", ",  # end\n    ", "\n  # last\n"]


@st.composite
def calls(draw) -> str:
    arguments = [
        *draw(st.lists(st.sampled_from(POSITIONAL), max_size=3)),
        *draw(st.lists(st.sampled_from(KEYWORDS), max_size=4, unique=True)),
    ]
    body = "".join(
        f"{draw(st.sampled_from(SEPARATORS)) if number else ''}{one}"
        for number, one in enumerate(arguments)
    )
    closing = draw(st.sampled_from(CLOSINGS)) if arguments else ""
    return (
        f"first()\nvalue = torch.call({draw(st.sampled_from(OPENINGS))}{body}{closing}) + 1  # "
        "after\nlast()\n"
    )


def read(source: str) -> tuple[list[str], dict[str, str]]:
    statement = ast.parse(source).body[1]
    assert isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)
    call = statement.value.left
    assert isinstance(call, ast.Call)
    return [ast.unparse(one) for one in call.args], {
        str(one.arg): ast.unparse(one.value) for one in call.keywords
    }


def comments(source: str) -> list[str]:
    return [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]


@given(calls(), st.lists(st.sampled_from("kmnz"), min_size=1, unique=True))
def test_keywords_are_set_in_any_layout(before, names):
    wanted = [
        Edit(Site("a.py", 2), "set_keyword", call="call", keyword=name, value="[7, 8]")
        for name in names
    ]
    after = apply_edits(before.encode(), wanted).decode()
    positional, keywords = read(before)
    assert read(after) == (positional, keywords | dict.fromkeys(names, "[7, 8]"))
    assert comments(after) == comments(before)
    assert after.count("\n") >= before.count("\n")


@given(calls(), st.data())
def test_keywords_are_dropped_in_any_layout(before, data):
    positional, keywords = read(before)
    names = data.draw(
        st.lists(st.sampled_from(sorted(keywords) or ["k"]), unique=True, max_size=len(keywords))
    )
    after = apply_edits(
        before.encode(),
        [Edit(Site("a.py", 2), "drop_keyword", call="call", keyword=name) for name in names],
    ).decode()
    assert read(after) == (
        positional,
        {name: value for name, value in keywords.items() if name not in names},
    )
    assert set(comments(after)) <= set(comments(before))
    assert comments(after)[-1] == "# after"
