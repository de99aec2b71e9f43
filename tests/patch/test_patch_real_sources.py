"""Every action on calls of real source files: refused, or exactly that one statement changed and
git agrees.
"""

import ast
import difflib
import functools
import os
import random
import re
import sysconfig
import warnings
from collections import Counter
from pathlib import Path

import pytest

from auditor.patch import Refused, apply_edits, diff_bytes

FILES = int(os.environ.get("AUDIT_PATCH_FILES", "60"))
CALLS = int(os.environ.get("AUDIT_PATCH_CALLS", "1"))
MAX_BYTES = int(os.environ.get("AUDIT_PATCH_BYTES", "16000"))
BATCH = 20

STDLIB, SITE = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib"))
FOLDERS = [
    STDLIB,
    STDLIB / "asyncio",
    STDLIB / "test",
    SITE / "torch/optim",
    SITE / "torch/nn/modules",
    SITE / "torch/utils/data",
]


def sample() -> list[Path]:
    chance = random.Random(10)
    files: list[Path] = []
    for folder in FOLDERS:
        here = sorted(path for path in folder.glob("*.py") if 200 < path.stat().st_size < MAX_BYTES)
        files += chance.sample(here, min(len(here), FILES // len(FOLDERS)))
    return files


def statement_of(parents: dict[ast.AST, ast.AST], call: ast.AST) -> ast.stmt:
    """The innermost statement that holds the call."""
    while not isinstance(call, ast.stmt):
        call = parents[call]
    return call


def edits_of(call: ast.Call, source: str, edit, chance: random.Random):
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    how = functools.partial(edit, line=call.lineno, call=name)
    yield how("set_keyword", keyword="audit_flag", value="[1, (2)]")
    if keywords := [item.arg for item in call.keywords if item.arg]:
        yield how("set_keyword", keyword=chance.choice(keywords), value="audit_value")
        yield how("drop_keyword", keyword=chance.choice(keywords))
    yield how("drop_statement")
    yield how("rename_call", value="audit_call(1)")
    yield edit("detach", line=call.lineno)
    for argument in call.args[:1]:
        yield how("detach", value=ast.get_source_segment(source, argument) or "")


def lines_of(raw: bytes) -> list[bytes]:
    return raw.split(b"\n")


TIDIED = re.compile(
    rb"\s*(#.*|(el)?if\b.*|else\b.*|finally\b.*|for\b.*|with\b.*|try\b.*|except\b.*|import\b.*|from\b.*|[\w:. ]+=.*|[\"\w]+(: [\w.]+)?,?|[\])}]+,?)?$"
)
"""Lines that may go with a statement: an empty line, a comment, the head of a block, an import, an
assignment of one or more lines."""


def expect_only_changed(before: bytes, after: bytes, first: int, last: int) -> None:
    """Outside the lines ``first`` to ``last`` (from 1) nothing is new, and only what the edit made
    useless is gone.
    """
    old, new = lines_of(before), lines_of(after)
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        outside = [
            line
            for row, line in enumerate(old[a:b], a + 1)
            if kind != "equal" and not first <= row <= last
        ]
        lost = [
            line for line in outside if line not in old[first - 1 : last] and line not in new[c:d]
        ]
        assert all(map(TIDIED.match, lost)), lost
        if kind == "replace" and len(outside) == b - a:
            # The edited line itself may be paired with one above it that went.
            allowed = (b"if not ", b" in ", b"import ", b"audit_call")
            assert all(any(word in line for word in allowed) for line in new[c:d]), new[c:d]


def expect_settled(after: bytes, wanted, text: str) -> None:
    """The same edit again is refused, or changes nothing, or has met a twin of the line that moved
    up.
    """
    try:
        again = apply_edits(after, [wanted])
    except Refused:
        return
    assert again == after or lines_of(after)[wanted.site.line - 1].strip() == text.encode()


def chosen(calls: list[ast.Call], chance: random.Random) -> list[ast.Call]:
    return chance.sample(calls, min(CALLS, len(calls)))


def made_edits(path: Path, edit, counts: Counter):
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(before)
    source = before.decode()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    chance = random.Random(path.name)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for call in (
        chosen(calls, chance)
        + chosen([c for c in calls if c.keywords], chance)
        + chosen([c for c in calls if id(c) in bare], chance)
    ):
        statement = statement_of(parents, call)
        first = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", [])))
        for plain in edits_of(call, source, edit, chance):
            text = source.split("\n")[plain.site.line - 1].strip()
            wanted = edit(
                plain.action,
                plain.site.line,
                text=text,
                call=plain.call,
                keyword=plain.keyword,
                value=plain.value,
            )
            try:
                after = apply_edits(before, [wanted])
            except Refused as reason:
                counts["refused"] += 1
                counts[f"refused: {' '.join(str(reason).split()[:4])}"] += 1
                continue
            counts[wanted.action] += 1
            expect_only_changed(before, after, first, statement.end_lineno or first)
            expect_settled(after, wanted, text)
            yield before, after


@pytest.fixture(scope="module")
def counts() -> Counter:
    return Counter()


@pytest.mark.parametrize(
    "number",
    range(len(FOLDERS)),
    ids=lambda number: f"{FOLDERS[number].parent.name}/{FOLDERS[number].name}",
)
def test_real_files_are_patched_exactly(number, edit, repository, counts):
    paths = [path for path in sample() if path.parent == FOLDERS[number]]
    if not paths:
        pytest.skip("this Python comes without these sources")
    made = [pair for path in paths if is_utf8(path) for pair in made_edits(path, edit, counts)]
    for start in range(0, len(made), BATCH):
        files = {f"real/{at}.py": pair for at, pair in enumerate(made[start : start + BATCH])}
        for name, (before, _) in files.items():
            repository.put(name, before)
        diff = b"".join(diff_bytes(before, after, name) for name, (before, after) in files.items())
        repository.expect_applies(diff, {name: after for name, (_, after) in files.items()})


def test_every_action_was_made(counts):
    if not counts:
        pytest.skip("the files were not read in this process")
    for action in ("set_keyword", "drop_keyword", "drop_statement", "rename_call", "detach"):
        assert counts[action] >= 10, counts


def is_utf8(path: Path) -> bool:
    """The test finds its lines by UTF-8 and by ``\\n``; other encodings have tests of their own."""
    raw = path.read_bytes()
    try:
        ast.parse(raw)
        return raw.decode().encode() == raw and b"\r" not in raw and b"coding:" not in raw[:200]
    except (SyntaxError, ValueError):
        return False
