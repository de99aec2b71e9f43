"""The rules about copies to the device, on tables made by hand, at both sides of each border."""

from dataclasses import replace

import pytest
from auditor.rules.data.datasets import LoaderWithoutPinnedMemory
from auditor.rules.sync.copies import (
    AsyncCopyFromPageableMemory,
    BlockingCopyEveryStep,
    ConstantSentEveryStep,
    TensorMadeOnHostThenMoved,
)

from auditor.evidence.recorded.batches import Loader
from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span
from auditor.model import Severity, Site
from tests.rules.asking import ask, copied

TEXT = """\
loader = DataLoader(data, batch_size=8)
other = Batches(data)
def step():
    x = x.to(device)
    y = y.to(device)
"""
LOADER, OTHER, X, Y = (
    Site("t.py", line, "", TEXT.split("\n")[line - 1].strip()) for line in (1, 2, 4, 5)
)
SOURCE = Source({"t.py": TEXT})


def copies(*steps, of=12, site=X, **more):
    facts = {"what": "batch", "bytes": 64_001, "loader": 0, "call": "to", **more}
    made = tuple(copied(site, step=step, **facts) for step in (steps or range(of)))
    return Copies("rehearsal", of, made, {0: Loader(0, made_at=LOADER), 1: Loader(1)})


def told(rule, *tables, **more):
    return list(ask(rule(**more), *tables))


def batches(table, **more):
    return told(LoaderWithoutPinnedMemory, table, SOURCE, **more)


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ({}, [LoaderWithoutPinnedMemory]),
        ({"pinned": True}, []),
        ({"blocking": False}, [LoaderWithoutPinnedMemory]),
        ({"what": "tensor"}, []),
        ({"what": "tensor", "blocking": False}, [AsyncCopyFromPageableMemory]),
        ({"what": "tensor", "blocking": False, "pinned": True}, []),
        ({"what": "made on the host"}, [TensorMadeOnHostThenMoved]),
        ({"what": "made on the host", "blocking": False}, [AsyncCopyFromPageableMemory]),
        ({"what": "constant"}, [ConstantSentEveryStep]),
        ({"what": "constant", "blocking": False}, []),
        ({"what": "constant", "pinned": True}, [ConstantSentEveryStep]),
        ({"what": "constant", "via": "lib.py:f"}, []),
    ],
)
def test_each_copy_has_one_rule(change, rules):
    alone = (AsyncCopyFromPageableMemory, ConstantSentEveryStep)
    with_source = (LoaderWithoutPinnedMemory, TensorMadeOnHostThenMoved)
    found = [rule for rule in alone if told(rule, copies(**change))]
    found += [rule for rule in with_source if told(rule, copies(**change), SOURCE)]
    assert found == rules


@pytest.mark.parametrize(
    ("size", "severity"), [(64_000, Severity.NOTE), (64_001, None), (1, Severity.NOTE)]
)
def test_small_copies_are_notes(size, severity):
    def pageable(**more):
        return told(AsyncCopyFromPageableMemory, copies(what="tensor", blocking=False, **more))

    (small,) = batches(copies(bytes=size), small=10**6)
    assert small.severity is Severity.NOTE
    for (found,) in (
        batches(copies(bytes=size)),
        pageable(bytes=size),
        pageable(bytes=2 * size, n=2),
    ):
        assert found.severity is severity


def test_a_loader_that_a_library_or_a_subclass_made():
    assert batches(copies(loader=None))[0].site == X
    mine = replace(copies(), loaders={0: Loader(0, made_at=OTHER)})
    assert batches(mine)[0].site == X
    inside = copies(via="lib.py:f")
    (found,) = batches(inside)
    text = LoaderWithoutPinnedMemory().remedy(found).text
    assert found.site == LOADER and "lib.py:f moves its batches" in text
    assert batches(replace(inside, loaders={})) == []


ABOVE = """\
def step():
    noise = torch.{makes}(8, 8)
    y = {moved}.to(device)
"""


@pytest.mark.parametrize(
    ("makes", "moved", "edits", "said"),
    [
        ("zeros", "noise", [True], "device= to torch.zeros."),
        ("randn", "noise", [False], "Random numbers then come from the device's generator"),
        ("randn", "(noise * 2)", [], "Make the tensor on the device"),
        ("load", "noise", [], "Make the tensor on the device"),
    ],
)
def test_a_tensor_made_some_lines_above(makes, moved, edits, said):
    text = ABOVE.format(makes=makes, moved=moved)
    line = text.split("\n")[2]
    span = Span(3, 3, line.index("=") + 2, len(line))
    table = copies(site=Site("t.py", 3, "step", line.strip()), what="tensor", span=span)
    (finding,) = told(BlockingCopyEveryStep, table, Source({"t.py": text}), Configs())
    known = bool(edits)
    assert [place.site.line for place in finding.places] == ([2, 3] if known else [])
    assert (f"made on the host by torch.{makes} (`t.py:2`)" in finding.message) is known
    remedy = BlockingCopyEveryStep().remedy(finding)
    assert said in remedy.text
    assert [each.safe for each in remedy.edits] == edits
