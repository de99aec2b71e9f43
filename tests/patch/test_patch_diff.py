"""Diffs are taken by git byte for byte, whatever the path and the content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.patch import diff_bytes
from auditor.patch.trees import quote_path

PATHS = ["a.py", "deep/er/a.py", "with space/a b.py", "modèle/été 1.py", "tab\there.py", 'quo"te.py', "back\\slash.py", "\x01\x7f.py",
         "date 2024-01-01 00:00:00.py", "a/b.py", "漢字.py"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_git_finds_any_path(path, repository):
    before, after = b"x = 1\ny = 2\n", b"x = 1\ny = 3\n"
    repository.put(path, before)
    repository.expect_applies(diff_bytes(before, after, path), {path: after})


def test_git_applies_below_the_top_of_a_repository(repository):
    file = repository.put("project/inner/step.py", b"x = 1\n")
    diff = diff_bytes(b"x = 1\n", b"x = 2\n", "inner/step.py")
    repository.expect_applies(diff, {"project/inner/step.py": b"x = 2\n"}, cwd=file.parent.parent)


def test_paths_are_quoted_as_git_quotes_them(repository):
    for path in PATHS:
        repository.put(path, b"1")
    listed = repository.git("ls-files", "--others").stdout.decode().splitlines()
    assert {quote_path(path) for path in PATHS} <= set(listed)


def test_no_change_is_no_diff():
    assert diff_bytes(b"x\n", b"x\n", "a.py") == b""


LINES = st.lists(
    st.sampled_from(
        [b"a", b"b", b"", b"\r", b"\xe9", b"x\rz", b"\x0c", b"-- a", b"++ b", b"\\ No"]
    ),
    max_size=12,
)


@given(LINES, LINES, st.booleans(), st.booleans())
def test_hunks_rebuild_the_new_file(old, new, old_ends, new_ends):
    before, after = (
        b"\n".join(lines) + b"\n" * ends for lines, ends in ((old, old_ends), (new, new_ends))
    )
    assert rebuild(before, diff_bytes(before, after, "a.py")) == after


def rebuild(before, diff):
    """A second reader of diffs: takes the old file's lines and the diff, gives the new file."""
    if not diff:
        return before
    old, out, at = before.split(b"\n"), [], 0
    hunk_lines = diff.split(b"\n")[2:-1]
    for number, line in enumerate(hunk_lines):
        if line.startswith(b"@@"):
            first, _, count = line.split()[1][1:].partition(b",")
            start = int(first) - (count != b"0")
            out += [part + b"\n" for part in old[at:start]]
            at = start
        elif line[:1] in b" +":
            bare = number + 1 < len(hunk_lines) and hunk_lines[number + 1].startswith(
                b"\\ No newline"
            )
            out.append(line[1:] + (b"" if bare else b"\n"))
        at += line[:1] in (b" ", b"-")
    return b"".join(out) + b"\n".join(old[at:])
