"""Variables that hold more tensors after each step."""

import pytest
from auditor.rules.mem.mem003_memory_grows import Keeper, KeptTensors

from auditor.model import Site

TEXT = "def step(self):\n    self.seen.append(1)\n    self.cut = self.cut[-8:]\n"


def row(tensors=(1, 2, 3), nbytes=(10, 20, 30), **more):
    facts = {"root": "r", "name": "self", "path": ".seen[*]", "line": 2, "function": "step"}
    given = {"tensors": list(tensors), "nbytes": list(nbytes), "devices": ["cpu"]}
    return {"pass": "loud", "step": 3, **facts, **given, **more}


@pytest.fixture
def kept(seen, home):
    def table(*rows):
        file = str(home / "trainer.py")
        return seen(text=TEXT, kept=[{"file": file, **each} for each in rows]).get(KeptTensors)

    return table


def test_a_line_that_was_not_found(kept):
    (unknown,) = kept(row(line=None)).keepers
    assert unknown.site is None


def test_rows_of_other_passes_or_of_unequal_length_do_not_count(kept):
    assert kept(row(**{"pass": "quiet"}), row(nbytes=(1, 2))).keepers == ()


SITE = Site("t.py", 3, "", "")


@pytest.mark.parametrize(
    ("facts", "host", "device"),
    [
        ({}, 1, 0),
        ({"devices": ("cuda",)}, 0, 1),
        ({"devices": ("cpu", "cuda")}, 0, 1),
        ({"devices": ("cpu", "cpu")}, 1, 0),
        ({"site": None}, 0, 0),
        ({"tensors": (1, 2, 2, 3)}, 0, 0),
        ({"tensors": (3, 2, 1)}, 0, 0),
        ({"tensors": (1, 1, 1, 1), "nbytes": (4, 8, 12, 16)}, 1, 0),
    ],
)
def test_those_that_grow(facts, host, device):
    known = {"site": SITE, "tensors": (1, 2, 3, 4), "devices": ("cpu",), **facts}
    keeper = Keeper("x", **{"nbytes": (1,) * len(known["tensors"]), **known})
    table = KeptTensors((keeper,))
    assert len(list(table.growing(0.9, device=False))) == host
    assert len(list(table.growing(0.9, device=True))) == device


LARGER = """def __init__(self):
    self.bank, self.mems = torch.zeros(8), None
def step(self, x, key):
    self.bank = torch.cat([self.bank, x])
    out, self.mems = self.model(x, self.mems)
    self.queue = torch.cat([self.queue, x])[-8:]
    self.cache[key] = x
"""


@pytest.mark.parametrize(
    ("facts", "bounded", "cut"),
    [
        ({"path": ".bank", "line": 4, "tensors": (1, 1, 1)}, False, False),
        ({"path": ".mems", "line": 5, "tensors": (1, 1, 1)}, True, False),
        ({"path": ".queue", "line": 6, "tensors": (1, 1, 1)}, True, True),
        ({"path": ".cache[*]", "line": 7}, True, True),
    ],
)
def test_what_is_known_to_have_an_end(seen, home, facts, bounded, cut):
    given = {"file": str(home / "trainer.py"), **row(**facts)}
    (keeper,) = seen(text=LARGER, kept=[given]).get(KeptTensors).keepers
    assert (keeper.bounded, keeper.cut) == (bounded, cut)


CYCLED = "def epoch(loader):\n    batches = itertools.cycle(loader)\n    return next(batches)\n"


def test_a_cycled_loader_is_bounded_by_nothing(seen, home):
    file = str(home / "trainer.py")
    more = {"file": file, "name": "batches", "path": "[*]", "function": "epoch"}
    (each,) = seen(text=CYCLED, kept=[row(**more)]).get(KeptTensors).keepers
    assert (each.cycled, each.bounded, each.cut) == (True, False, False)
