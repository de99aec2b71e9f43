"""How much a pickle may ask for before it is refused, and which are rehearsed first."""

import gc
import gzip
import pickle
import resource
from contextlib import contextmanager

import pytest

from auditor.evidence.snapshot import file
from auditor.evidence.snapshot.file import RefusedPickle, load_plain, memory_capped
from auditor.isolation import ReaderDied


@pytest.fixture
def asked(monkeypatch):
    """What memory was asked for, and what was read in another process first."""
    found = {"memory": [], "rehearsed": []}

    @contextmanager
    def capped(more):
        found["memory"].append(more)
        yield

    def isolated(read, errors, *, seconds, memory):
        found["rehearsed"].append((seconds, memory))

    monkeypatch.setattr(file, "memory_capped", capped)
    monkeypatch.setattr(file, "isolated", isolated)
    return found


@pytest.fixture
def written(tmp_path):
    def write(content, name="s.pickle"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


class Long(bytes):
    """Of so many bytes, as it says."""

    says = 0

    def __len__(self):
        return self.says


@pytest.mark.parametrize(
    ("size", "memory"),
    [(2**27, 2**29 + 2**31), (2**28 - 2**25, 2**32), (2**28, 2**32), (2**30, 2**32)],
)
def test_memory_has_a_limit(asked, written, monkeypatch, size, memory):
    long = Long(pickle.dumps(1))
    long.says = size
    monkeypatch.setattr(file, "_unpacked", lambda path, limit: long)
    load_plain(written(b""))
    assert asked["memory"] == [memory]


@pytest.mark.parametrize("opcode", [b"\x85", b"\x86", b"\x87", b"t"])
@pytest.mark.parametrize(("number", "tried"), [(4_999, 0), (5_000, 1)])
def test_many_tuples_are_rehearsed(asked, written, opcode, number, tried):
    few = pickle.dumps(1)
    assert not any(map(few.count, file.TUPLES))
    load_plain(written(few + opcode * number))  # what follows the end is not read
    assert len(asked["rehearsed"]) == tried


def test_a_reader_that_dies_refuses(monkeypatch, written):
    def dies(read, errors, *, seconds, memory):
        raise ReaderDied("it died")

    monkeypatch.setattr(file, "isolated", dies)
    with pytest.raises(RefusedPickle, match="s.pickle was not read: it died"):
        load_plain(written(pickle.dumps(b"t" * 6000)))


@pytest.mark.parametrize(("limit", "refused"), [(0, False), (-1, True)])
@pytest.mark.parametrize("packed", [False, True])
def test_the_limit_is_of_the_unpacked_bytes(asked, written, limit, refused, packed):
    content = pickle.dumps("x" * 5000)
    path = written(gzip.compress(content) if packed else content)
    if refused:
        with pytest.raises(RefusedPickle, match=f"larger than {len(content) + limit} bytes"):
            load_plain(path, len(content) + limit)
    else:
        assert load_plain(path, len(content) + limit) == "x" * 5000


@pytest.mark.parametrize(
    ("least", "ratio", "refused"),
    [(4999, 1, True), (6000, 1, False), (1, 200, False), (1, 1, True)],
)
def test_a_small_file_may_inflate_by_so_much(asked, written, monkeypatch, least, ratio, refused):
    assert (file.RATIO, file.UNPACKED_AT_LEAST) == (200, 64 * 2**20)
    monkeypatch.setattr(file, "UNPACKED_AT_LEAST", least)
    monkeypatch.setattr(file, "RATIO", ratio)
    path = written(gzip.compress(pickle.dumps("x" * 5000)))
    if refused:
        with pytest.raises(RefusedPickle, match="larger than"):
            load_plain(path)
    else:
        assert load_plain(path) == "x" * 5000


@pytest.mark.parametrize("enabled", [True, False])
def test_collections_are_as_they_were(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with file.uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_cap_is_above_what_the_process_has_and_goes_away(monkeypatch):
    before = resource.getrlimit(resource.RLIMIT_AS)
    sets = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: before)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: sets.append(limits))
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    with memory_capped(1 << 40):
        pass
    (cap, hard), after = sets
    assert after == before and hard == before[1]
    assert abs(cap - size - (1 << 40)) < 1 << 30


@pytest.mark.parametrize(("soft", "kept"), [(1 << 20, True), (1 << 60, False)])
def test_a_lower_cap_stays(monkeypatch, soft, kept):
    sets = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, 1 << 61))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: sets.append(limits))
    with memory_capped(1 << 40):
        pass
    assert (sets[0][0] == soft) is kept
