"""Copies from the host to the device: what was copied, by whom, from which memory."""

import pytest

from auditor.evidence.recorded.copies import FEW, Copies, CopyLine
from auditor.evidence.source.files import Span
from auditor.model import Site
from tests.evidence.recorded.rows import loud, steps
from tests.rules.asking import copied

SITE = Site("trainer.py", 3)


def copy(step=0, at=0, n=1, bytes_=8, row=loud, **more):
    return row(step, at=at, n=n, bytes=bytes_, **more)


def table(seen, text, rows, sites, number=4):
    parts = {"steps": steps(number), "copies": rows, "loaders": [], "batches": []}
    return seen(text=text, device="rehearse", sites=sites, **parts).get(Copies)


def spanned(text):
    """The site of the first line's expression, from its first to its last column."""
    line = text.splitlines()[0]
    return (1, {"first_line": 1, "end_line": 1, "col": 0, "end_col": len(line)})


@pytest.mark.parametrize(
    ("text", "size", "row", "what", "written"),
    [
        ("x.to(device)", 8, {}, "tensor", False),
        ("x.to(device)", 8, {"loader": 2}, "batch", False),
        ("x.to(device)", 999, {"constant": True}, "constant", True),
        ("torch.tensor([1, 2]).to(device)", 999, {}, "constant", True),
        ("torch.tensor([0.5] * 9).to(device)", 999, {}, "constant", True),
        ("torch.tensor(-(1 + 2)).to(device)", 999, {}, "constant", True),
        ("torch.tensor(x / 255).to(device)", 999, {}, "tensor", False),
        ("torch.tensor(x if y else -x).to(device)", FEW, {}, "constant", False),
        ("torch.tensor(x).to(device)", FEW, {}, "constant", False),
        ("torch.tensor(x).to(device)", FEW + 1, {}, "tensor", False),
        ("torch.tensor(x).to(device)", 2 * FEW, {"n": 2}, "constant", False),
        ("torch.tensor().to(device)", FEW + 1, {}, "tensor", False),
        ("torch.zeros(3).to(device)", 8, {}, "made on the host", False),
        ("torch.triu(torch.zeros(3)).to(device)", 8, {}, "made on the host", False),
        ("torch.zeros(3).float().to(device)", 8, {}, "made on the host", False),
        ("other.triu(torch.zeros(3)).to(device)", 8, {}, "tensor", False),
        ("torch.cat(torch.zeros(3)).to(device)", 8, {}, "tensor", False),
        ("torch.zeros(3)", 8, {}, "tensor", False),
    ],
)
def test_what_is_copied(seen, text, size, row, what, written):
    (one,) = table(seen, text, [copy(bytes_=size, **row)], [spanned(text)]).copies
    assert (one.what, one.written) == (what, written)


def test_the_call_and_its_place(seen):
    text = "x.to(device)"
    places = [spanned(text), 1, (1, {"col": 0}), (2, {"via": "lib.py:move"})]
    rows = [copy(at=n) for n in range(4)]
    whole = Span(1, 1, 0, 12)
    exact, line, half, other = table(seen, text + "\nx = y\n", rows, places).copies
    assert (exact.call, exact.span, exact.via) == ("to", whole, "")
    assert (line.call, line.span, half.call, half.span) == ("to", None, "to", whole)
    assert (other.call, other.span, other.via) == ("", None, "lib.py:move")


def test_a_line_by_its_copies():
    here = (
        copied(SITE, "tensor", 1, n=3, bytes=2048, pinned=True, call="to", via="b"),
        copied(SITE, "tensor", 0, n=1, bytes=1024, call="cuda", via="a", index=True, written=True),
        copied(SITE, "tensor", 0, bytes=1024, call="to", blocking=False, via="a"),
        copied(SITE, "tensor", 0, call="tensor", via="a"),
        copied(SITE, "tensor", 1, call="to", via="a"),
    )
    place = CopyLine.of(here, 4)
    assert (place.per_step, place.bytes_per_step, place.pattern.seen) == (1.75, 1024.0, (0, 1))
    assert (place.amount, place.memory, place.library) == ("2 KiB", "pageable", "a, b")
    assert place.moves == ((SITE, "cuda", None), (SITE, "to", None))
    assert (place.indexes, place.written) == (False, False)
    assert place.facts == (
        ("copied", "1 KiB per step in 1.75 copies"),
        ("from", "pageable memory"),
        ("seen on", "2 of 4 steps"),
        ("copied inside", "a, b"),
    )
    one = CopyLine.of(here[1:2], 4)
    assert (one.indexes, one.written, one.memory) == (True, True, "pageable")
    assert CopyLine.of(here[:1], 4).memory == "pinned"
    own = CopyLine.of((*here, copied(SITE, "tensor", 0)), 4)
    assert own.library == "" and len(own.facts) == 3
