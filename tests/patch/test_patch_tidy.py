"""After a statement is dropped: no hollow block or extra blank line, each comment and import."""

import ast

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from auditor.model import Edit, Site
from auditor.patch import Refused, apply_edits, diff_bytes
from tests.patch.marked import sides

GONE = "torch.cuda.empty_cache()"

# name: what goes and what comes; the statement that goes is the line with GONE in it
# fmt: off
TIDY = {
    "an if that only did it": "a[-()\nif torch.cuda.is_available():\n    torch.cuda.empty_cache-]()\nb()\n",
    "ifs around ifs": (
        "for b in l:\n    a()\n[-    if use_cuda:\n        if rank == 0 and not quiet:\n            torch.cuda.empty_cache()\n-]"),
    "an if in an else": "if x:\n    a()\nelse:\n    [-if y:\n        torch.cuda.empty_cache()-]{+pass+}\nb()\n",
    "an elif": "if x:\n    a()\nelif y:\n    [-torch.cuda.empty_cache()-]{+pass+}\nb()\n",
    "an else with a comment": (
        "if x:\n    a()\n# without a GPU\nelse:\n    # free it\n    [-torch.cuda.empty_cache()  # all-]{+pass+}\nb()\n"),
    "an if before an else": "if x:  # one\n    [-torch.cuda.empty_cache()-]{+pass+}\nelse:  # other\n    b()\n",
    "one case of several": "if x:\n    # free it\n    [-torch.cuda.empty_cache()  # all-]{+pass+}\nelif y:\n    b()\n",
    "an except": (
        "try:\n    a()\nexcept RuntimeError:\n    # free what is cached\n    [-torch.cuda.empty_cache()  # all-]{+pass+}\n"),
    "a comment, which stays": "a()\n\n# sync the device\n[-torch.cuda.empty_cache()  # all\n-]\nb()\n",
    "no comment, the end of a text": 'a = """\n# free\n"""\n[-torch.cuda.empty_cache()\n-]\nb()\n',
    # blank lines
    "between blank lines": "a[-()\n\ntorch.cuda.empty_cache-]()\n\nb()\n",
    "blank lines below": "def f():\n    a()\n[-    torch.cuda.empty_cache()\n-]\n\nb()\n",
    "last of a block": "def f():\n    a()\n[-\n    torch.cuda.empty_cache()\n-]b()\n",
    "last of a file": "a()\n[-\ntorch.cuda.empty_cache()\n-]",
    "first of a block": "def f():\n    [-torch.cuda.empty_cache()\n\n    -]a()\n",
    "first of a file": "[-torch.cuda.empty_cache()\n\n-]a()\n",
    "blank lines doubled before": "a()\n\n\nb()\n[-torch.cuda.empty_cache()\n-]c()\n",
    "an import, which stays": "import gc\nimport torch\nx = torch.zeros(1)\n[-gc.collect()\n-]",
}
# fmt: on

# fmt: off
REFUSED = {
    "a condition with an effect": ("if tick():\n    torch.cuda.empty_cache()\n", "may have side effects"),
    "a walrus": ("if (n := 3):\n    torch.cuda.empty_cache()\n", "may have side effects"),
    "a loop": ("for i in range(3):\n    torch.cuda.empty_cache()\n", "`for`"),
    "a lock": ("with lock:\n    torch.cuda.empty_cache()\n", "`with`"),
    "a function": ("def free():\n    torch.cuda.empty_cache()\n", "`free`"),
    "a try": ("try:\n    torch.cuda.empty_cache()\nfinally:\n    b()\n", "`try`"),
}
# fmt: on


def dropped(text, file="t.py"):
    name = "collect" if "gc.collect" in text else "empty_cache"
    line = max(n for n, row in enumerate(text.split("\n"), 1) if name + "(" in row)
    return apply_edits(text.encode(), [Edit(Site(file, line), "drop_statement", name)]).decode()


@pytest.mark.parametrize("name", TIDY)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_what_stays_reads_as_written(name, ends):
    before, after = (text.replace("\n", ends) for text in sides(TIDY[name]))
    line = max(
        n
        for n, row in enumerate(before.split("\n"), 1)
        if "empty_cache(" in row or "gc.collect(" in row
    )
    call = "collect" if "gc.collect(" in before else "empty_cache"
    assert (
        apply_edits(before.encode(), [Edit(Site("t.py", line), "drop_statement", call)]).decode()
        == after
    )


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_left_hollow_is_refused(name):
    before, words = REFUSED[name]
    with pytest.raises(Refused, match=words):
        dropped(before)


# -- any program: the statements that go are marked, and the tree says what must stay --------------

SIMPLE = st.sampled_from(["a()", "b = c", "d += 1", 'e("""\n# text\n""")', "x = y; z()"])
MARKED = st.sampled_from(["gone()", "gone(  # why\n)", "gone()  # why"])
CONDITIONS = st.sampled_from(["u", "not u", "u.v == 1", "u is None", "f()", "u and v"])
BETWEEN = st.sampled_from(["", "\n", "# gone for good\n", "\n# a note\n", "\n\n"])


@st.composite
def blocks(draw, depth=0):
    """Some statements, each on lines of its own, with comments and blank lines between them."""
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        if depth < 3 and draw(st.integers(0, 2)) == 0:
            rows.append(draw(compounds(depth + 1)))
        else:
            rows.append(draw(st.one_of(SIMPLE, MARKED)))
    return "\n".join(draw(BETWEEN) + row for row in rows)


@st.composite
def compounds(draw, depth):
    def block():
        lines = draw(blocks(depth)).split("\n")
        # Lines of a text keep their place: they are no lines of the program.
        inside, out = False, []
        for line in lines:
            out.append(line if inside or not line.strip() else "    " + line)
            inside ^= line.count('"""') % 2 == 1
        return "\n".join(out)

    kind = draw(st.sampled_from(["if", "else", "elif", "for", "try", "finally", "with"]))
    test = draw(CONDITIONS)
    if kind == "for":
        return f"for i in {draw(st.sampled_from(['range(3)', 'u']))}:\n{block()}"
    if kind == "with":
        return f"with {draw(st.sampled_from(['torch.no_grad()', 'u']))}:\n{block()}"
    if kind == "try":
        return f"try:\n{block()}\nexcept E:\n{block()}"
    if kind == "finally":
        return f"try:\n{block()}\nexcept E:\n{block()}\nelse:\n{block()}\nfinally:\n{block()}"
    more = {
        "if": "",
        "else": f"\nelse:\n{block()}",
        "elif": f"\nelif {draw(CONDITIONS)}:\n{block()}\nelse:\n{block()}",
    }
    return f"if {test}:\n{block()}{more[kind]}"


def run(tree, *, without, choices):
    """The effects of a program in order, conditions decided by their names."""
    effects: list[str] = []

    def truth(test):
        if isinstance(test, ast.UnaryOp):
            return not truth(test.operand)
        if isinstance(test, ast.BoolOp):
            return all(truth(value) for value in test.values)
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
            return not truth(ast.Compare(test.left, [ast.Is()], test.comparators))
        if isinstance(test, ast.Call):
            effects.append(ast.unparse(test))
        return choices[sum(map(ord, ast.unparse(test))) % len(choices)]

    def walk(statements):
        for node in statements:
            if isinstance(node, ast.If):
                walk(node.body if truth(node.test) else node.orelse)
            elif isinstance(node, ast.For):
                for _ in range(2):
                    walk(node.body)
            elif isinstance(node, ast.With):
                walk(node.body)
            elif isinstance(node, ast.Try):
                walk(node.body)
                walk(node.orelse)
                walk(node.finalbody)
                for handler in node.handlers if does_something(node.body) else []:
                    walk(handler.body)
            elif not isinstance(node, ast.Pass) and not (without and ast.unparse(node) == "gone()"):
                effects.append(ast.unparse(node))

    walk(tree.body)
    return effects


def does_something(statements):
    """Anything but the marked statements is in a block: else its ``except`` cannot run."""
    return any(
        any(does_something(getattr(node, part, [])) for part in ("body", "orelse", "finalbody"))
        if hasattr(node, "body")  # handlers of a body that does nothing cannot run, either
        else not isinstance(node, ast.Pass) and ast.unparse(node) != "gone()"
        for node in statements
    )


@given(blocks(), st.lists(st.booleans(), min_size=5, max_size=5), st.booleans())
def test_any_statements_go_and_nothing_else_changes(repository, text, choices, windows):
    before = (text + "\n").replace("\n", "\r\n" if windows else "\n").encode()
    marked = [
        node
        for node in ast.walk(ast.parse(before))
        if isinstance(node, ast.Expr) and ast.unparse(node) == "gone()"
    ]
    edits = [Edit(Site("t.py", node.lineno), "drop_statement", "gone") for node in marked]
    try:
        after = apply_edits(before, edits)
    except Refused:
        event("refused")
        return
    event(f"dropped {min(len(edits), 3)}")
    tree = ast.parse(after)
    expected = run(ast.parse(before), without=True, choices=choices)
    assert run(tree, without=True, choices=choices) == expected
    assert b"gone()" not in after
    old, new = before.decode().splitlines(), after.decode().splitlines()
    assert not {line.strip() for line in new} - {line.strip() for line in old} - {"pass"}
    assert edits or after == before
    if edits:
        repository.put("t.py", before)
        diff = diff_bytes(before, after, "t.py")
        repository.expect_applies(diff, {"t.py": after})
        assert repository.git("apply", "-R", "-", stdin=diff).returncode == 0
        assert (repository.folder / "t.py").read_bytes() == before
