"""The columnar copy of a trace: equal to what was read, bounded, and left out where it is damaged
or cannot be written.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from auditor.timeline import Timeline, Trace, columnar_copy, read, read_once
from auditor.timeline.trace import TABLES, schema
from tests.timeline.kineto import head_with_memory, memory, text, training


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Where copies are kept, of files of any size."""
    monkeypatch.setenv(columnar_copy.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(columnar_copy, "LEAST_BYTES", 1)
    return tmp_path / "cache"


@pytest.fixture
def trace(tmp_path):
    """A file with work of a device, memory events, and a text that is no ASCII."""
    path = tmp_path / "trace.json"
    path.write_text(
        text([*training(3), memory(1500, 10, 600, 800)], head=head_with_memory(1000)).replace(
            "aten::", "aten\u00e9::"
        )
    )
    return path


def same(one: Trace, other: Trace) -> bool:
    """Whether two traces are equal in every column, text and fact."""
    plain = [field.name for field in fields(Trace) if field.name not in TABLES]
    facts = all(getattr(one, name) == getattr(other, name) for name in plain)
    columns = ((group, name) for group, table in TABLES.items() for name, _ in schema(table))
    return facts and all(
        (mine := getattr(getattr(one, group), name)).dtype
        == (its := getattr(getattr(other, group), name)).dtype
        and np.array_equal(mine, its)
        for group, name in columns
    )


def forbidden(path):
    raise AssertionError(f"{path} was read again")


def test_the_second_time_everything_comes_from_the_copy(cache, trace, monkeypatch):
    first = read_once(trace)
    assert same(first, read(trace)) and any("\u00e9" in name for name in first.names)
    monkeypatch.setattr(columnar_copy, "read", forbidden)
    moved = shutil.copy(trace, trace.with_name("other.json"))
    assert same(first, read_once(trace))
    again = read_once(moved)  # it is known by its content
    assert again.path == str(moved)
    Timeline(again).compute()  # no table writes into columns


def test_another_content_is_read(cache, trace):
    steps = len(Timeline(read_once(trace)).steps.start)
    facts = trace.stat()
    trace.write_text(text(training(7)))
    os.utime(trace, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (steps, len(Timeline(read_once(trace)).steps.start)) == (3, 7)


@pytest.mark.parametrize(
    "damage", ["cut", "longer", "one bit", "another layout", "no copy", "a huge head", "empty"]
)
def test_a_damaged_copy_is_no_copy_and_is_made_again(cache, trace, damage, monkeypatch):
    read_once(trace)
    (copy,) = cache.iterdir()
    whole = copy.read_bytes()
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    copy.write_bytes(
        {
            "cut": whole[:-8],
            "longer": whole + bytes(8),
            "one bit": bytes(flipped),
            "another layout": whole.replace(columnar_copy._layout().encode(), b"0" * 64),
            "no copy": b"PK\x03\x04" + whole,
            "a huge head": columnar_copy.MAGIC + (1 << 62).to_bytes(8, "little"),
            "empty": b"",
        }[damage]
    )
    assert columnar_copy.load(copy, str(trace)) is None
    assert same(read_once(trace), read(trace))
    assert copy.read_bytes() == whole


def test_a_file_that_is_still_written_is_not_kept(cache, trace, monkeypatch):
    def growing(path):
        found = read(path)
        with path.open("a") as file:
            file.write("\n")
        return found

    monkeypatch.setattr(columnar_copy, "read", growing)
    read_once(trace)
    assert not cache.exists()


def test_where_nothing_can_be_written_the_trace_is_read_all_the_same(cache, trace):
    cache.write_text("a file, where the folder should be")
    assert same(read_once(trace), read(trace))


def test_a_disk_that_is_full_leaves_no_half_copy(cache, trace, monkeypatch):
    def full(name, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(columnar_copy.os, "replace", full)
    assert same(read_once(trace), read(trace))
    assert list(cache.iterdir()) == []


def test_copies_hold_no_more_than_their_bound_and_the_last_used_stay(cache, tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.json" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_text(text(training(3)).replace("aten::", f"ten{number}::"))
    read_once(paths[0])
    size = sum(copy.stat().st_size for copy in cache.iterdir())
    monkeypatch.setattr(columnar_copy, "TOTAL_BYTES", 3 * size + 100)
    for number, path in enumerate(paths[1:3]):
        read_once(path)
        os.utime(columnar_copy.place(path), (1000 + number, 1000 + number))
    read_once(paths[0])  # used again
    read_once(paths[3])
    kept = [path for path in paths if columnar_copy.place(path).is_file()]
    assert paths[0] in kept and paths[3] in kept and paths[1] not in kept
    assert sum(copy.stat().st_size for copy in cache.iterdir()) <= 3 * size + 100


def test_a_copy_larger_than_half_of_all_is_not_made(cache, trace, monkeypatch):
    monkeypatch.setattr(columnar_copy, "TOTAL_BYTES", 1000)
    read_once(trace)
    assert not cache.exists()


def test_small_files_and_an_empty_variable_make_no_copy(tmp_path, trace, monkeypatch):
    monkeypatch.setenv(columnar_copy.FOLDER, str(tmp_path / "cache"))
    assert columnar_copy.place(trace) is None
    monkeypatch.setattr(columnar_copy, "LEAST_BYTES", 1)
    assert columnar_copy.place(trace).parent == tmp_path / "cache"
    monkeypatch.setenv(columnar_copy.FOLDER, "")
    assert columnar_copy.place(trace) is None


def test_the_folder_is_the_users_cache(monkeypatch):
    monkeypatch.delenv(columnar_copy.FOLDER, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert columnar_copy.folder() == Path("/somewhere/cache/torch-step-audit")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert columnar_copy.folder() is None
