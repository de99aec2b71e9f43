"""Memory over time by what it is for, on a history that is short enough to follow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from auditor.evidence.snapshot import by_purpose
from auditor.evidence.snapshot.by_line import Move, held_at
from auditor.evidence.snapshot.by_purpose import Lives, told_by_purpose
from auditor.evidence.snapshot.owners import EARLIER, FOR_EVER, KEPT, OF_STEP


def event(action, addr, size=0):
    return {"action": action, "addr": addr, "size": size}


EVENTS = [
    (5, event("alloc", 100), 10),  # before the first step
    (12, event("alloc", 200), 40),  # of step one: parameters
    (13, event("alloc", 300), 45),  # of step one, nothing known
    (14, event("alloc", 400), 52),  # the same, freed again
    (15, event("free_requested", 400), 45),
    (16, event("free_completed", 400), 45),
    (20, event("alloc", 500), 46),  # step two begins here
    (30, event("free_requested", 999), 44),  # of nobody that is known
    (31, event("free_requested", 300), 39),
]
NAMED = {200: "parameters", 1: "gradients"}


class Owners:
    """Purposes by address; steps begin at 10, 20 and 25."""

    known = True
    steps = (10, 20, 25)

    def __init__(self):
        self.asked = []

    def purpose(self, address, born, gone):
        self.asked.append((address, born, gone))
        return NAMED.get(address, "")

    def age(self, born, now):
        assert born == now
        return OF_STEP if born >= 10 else EARLIER


@pytest.fixture
def told(monkeypatch):
    def make(start=8, blocks=((1, 3), (2, 4)), owners=None, times=None, **more):
        trace = [each for _, each, _ in EVENTS]
        course = SimpleNamespace(
            device=0,
            time_us=[at for at, _, _ in EVENTS] if times is None else times,
            allocated=[after for _, _, after in EVENTS],
            start_allocated=start,
        )
        data = SimpleNamespace(trace=lambda device: trace)
        live = [SimpleNamespace(address=address, size=size) for address, size in blocks]
        before = SimpleNamespace(blocks=live)

        def state_after(of, device, index):
            assert (of, device, index) == (data, 0, -1)
            return before

        monkeypatch.setattr(by_purpose, "state_after", state_after)
        return told_by_purpose(data, course, owners or Owners())

    return make


def test_who_allocated_and_freed(told):
    found = told()
    assert found.owners == (EARLIER, OF_STEP, KEPT, "gradients", "parameters")
    assert list(found.owner) == [0, 4, 1, 1, 1, -1, 1, 0, 2]
    assert found.before == (5, 0, 0, 3, 0)  # 4 of block 2, 1 whose free was pending
    assert found.last_at == {1: 3, 2: 0, 100: 0, 200: 4, 300: 2, 400: 1, 500: 2}


def test_what_lives_on_belongs_to_what_was_kept_from_the_next_step_on(told):
    found = told()
    assert dict(found.moves) == {1: (), 6: (Move(1, 2, 5),), 7: (Move(1, 2, 1),)}
    last = held_at(SimpleNamespace(**vars(found)), (5, 6, 8)).held
    assert last == ((7, 5, 0, 3, 30), (7, 1, 5, 3, 30), (5, 0, 1, 3, 30))


def test_each_block_lives_until_the_next_at_its_address(told):
    owners = Owners()
    told(owners=owners, blocks=((300, 3),))
    assert owners.asked[0] == (300, 0, 13)
    assert (300, 13, FOR_EVER) in owners.asked and (100, 5, FOR_EVER) in owners.asked


def test_nothing_is_told_without_owners_or_times(told):
    nobody = Owners()
    nobody.known = False
    assert told(owners=nobody) is None
    assert told(times=[]) is None


def test_the_first_event_is_counted_from_the_start(told, monkeypatch):
    monkeypatch.setattr(Owners, "steps", (1,))
    monkeypatch.setattr(Owners, "age", lambda self, born, now: OF_STEP)
    found = told(start=8)
    assert found.owner[0] == 1
    monkeypatch.setattr(Owners, "steps", (1, 12))
    assert dict(told(start=8).moves)[1] == (Move(1, 2, 2),)


def test_lives_of_addresses():
    trace = [event("alloc", 1), event("free_requested", 1), event("alloc", 2), event("alloc", 1)]
    lives = Lives(trace, [10, 11, 12, 13])
    assert lives.gone_us(1, -1) == 10
    assert lives.gone_us(1, 0) == 13
    assert lives.gone_us(1, 0) == 13
    assert lives.gone_us(1, 3) == FOR_EVER
    assert (lives.gone_us(2, -1), lives.gone_us(2, 2), lives.gone_us(9, -1)) == (
        12,
        FOR_EVER,
        FOR_EVER,
    )
