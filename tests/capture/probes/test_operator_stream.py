"""The stream of operators: who is asked, in which order, and what never reaches the program."""

import gc
import os
import threading
import weakref

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.storages import Storages, storage_bytes, storage_key
from auditor.capture.probes.operator_stream import Subscriber
from tests.capture.streams import watched_by


def stack():
    return _python_dispatch._get_current_dispatch_mode_stack()


class Heard(Subscriber):
    """Notes names of operators, in a list that several share."""

    def __init__(self, name="", heard=None):
        self.errors = []
        super().__init__(self.errors.append)
        self.name = name
        self.heard = [] if heard is None else heard
        self.asked = []

    def wants(self, operator):
        self.asked.append(operator.name)
        return not operator.view

    def before(self, call):
        self.heard.append((self.name, "before", call.operator.name))
        return call.operator.name

    def after(self, call, noted):
        self.heard.append((self.name, "after", noted))

    def raised(self, noted):
        self.heard.append((self.name, "raised", noted))


# -- subscriptions ---------------------------------------------------------------------------------


def test_a_mode_of_the_users_on_top_stays_there():
    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    own, one = Own(), Heard()
    with watched_by(one):
        own.__enter__()
        torch.ones(1)
    assert stack() == [own]
    own.__exit__(None, None, None)
    assert one.heard[0] == ("", "before", "ones")


# -- what is shown ---------------------------------------------------------------------------------


class Calls(Subscriber):
    """Keeps what it can know of a call."""

    def __init__(self, ask):
        super().__init__(lambda error: pytest.fail(repr(error)))
        self.ask = ask
        self.known = []

    def before(self, call):
        return True

    def after(self, call, noted):
        self.known.append(self.ask(call))


def known(run, ask):
    one = Calls(ask)
    with watched_by(one):
        run()
    return one.known


def test_tensors_of_a_call():
    x, y = torch.ones(2), torch.zeros(2)

    def ask(call):
        names = {id(x): "x", id(y): "y"}
        return [
            [names.get(id(each), "new") for each in some]
            for some in (call.given, call.written, call.made)
        ]

    assert known(lambda: torch._foreach_add_([x, y], 1), ask) == [[["x", "y"], ["x", "y"], []]]
    assert known(lambda: torch.add(x, y), ask) == [[["x", "y"], [], ["new"]]]
    assert known(lambda: torch.add(x, x, out=y), ask) == [[["x", "x", "y"], ["y"], ["y"]]]


# -- what never reaches the program ----------------------------------------------------------------


@pytest.mark.parametrize("where", ["wants", "before", "after"])
def test_what_a_subscriber_raises_reaches_neither_the_program_nor_the_others(where):
    broken, whole = Heard(), Heard()

    def fail(*_):
        raise ValueError(where)

    setattr(broken, where, fail)
    with watched_by(broken, whole):
        assert torch.equal(torch.ones(2).add(1), torch.full((2,), 2.0))
    assert [str(error) for error in broken.errors[:1]] == [where]
    assert [when for _, when, name in whole.heard if name == "add"] == ["before", "after"]
    assert whole.errors == []


def test_nor_what_its_report_of_an_error_raises():
    def report(error):
        raise OSError("disk full")

    one = Heard()
    one.before = lambda call: 1 / 0
    one.on_error = report
    with watched_by(one):
        torch.ones(1)


def test_no_look_of_ours_is_shown_to_anybody():
    class Looking(Heard):
        def before(self, call):
            assert LOOKING.depth == 1
            torch.zeros(3).exp()
            return super().before(call)

    looking, other = Looking(), Heard()
    with watched_by(looking, other):
        torch.ones(1)
        with LOOKING:
            torch.ones(1)
    assert looking.errors == []
    assert [name for _, when, name in other.heard if when == "after"] == ["ones"]
    assert LOOKING.depth == 0


def test_an_error_of_the_operator_is_the_programs_and_those_who_wait_hear_of_it():
    one = Heard()
    with watched_by(one), pytest.raises(RuntimeError, match="size"):
        torch.ones(2).add(torch.ones(3))
    assert one.heard[-2:] == [("", "before", "add"), ("", "raised", "add")]
    assert LOOKING.depth == 0


def test_subclasses_are_not_asked_a_second_time():
    asked = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.arange(9.0).view(3, 3).as_subclass(Own)
    rows, columns = torch.tensor([0, 1]), torch.tensor([1, 2])
    alone = x[rows, columns].tolist()
    once, _ = len(asked), asked.clear()
    with watched_by(Heard()):
        assert x[rows, columns].tolist() == alone
    assert len(asked) == once


def test_a_wrapper_of_tensors_is_looked_into_where_one_asks_for_that():
    from torch.testing._internal.two_tensor import TwoTensor

    both = TwoTensor(torch.ones(2), torch.zeros(2))
    outside, inside = Heard(), Heard()
    with watched_by(outside):
        both.add(1)
    inside.inside = True
    with watched_by(inside):
        both.add(1)
    count = [len([1 for _, when, name in one.heard if name == "add"]) for one in (outside, inside)]
    assert count == [2, 4]


def test_another_thread_and_a_forked_process_are_left_alone():
    one = Heard()
    with watched_by(one) as stream:
        thread = threading.Thread(target=lambda: torch.ones(1))
        thread.start()
        thread.join()
        stream._process = os.getpid() + 1
        torch.ones(1)
    assert one.heard == []


def test_nothing_is_kept_alive():
    with watched_by(Heard()) as stream:
        x = torch.ones(10).add(1)
        weak = StorageWeakRef(x.untyped_storage())
        del x
        assert weak.expired()
        stream = weakref.ref(stream)
    gc.collect()
    assert stream() is None


# -- storages --------------------------------------------------------------------------------------


def test_views_share_what_is_known_and_no_address_is_used_again():
    facts, x = Storages(), torch.ones(4)
    assert facts.of(x) is None
    facts.lay(x, "fact")
    assert facts.of(x[1:].view(3, 1)) == "fact"
    facts.lay(x.detach(), "later")
    assert (facts.of(x), len(facts)) == ("later", 1)
    weak = StorageWeakRef(x.untyped_storage())
    key = storage_key(x)
    del x
    assert weak.expired()
    assert list(facts.items()) == [(key, "later", False)]
    assert all(facts.of(torch.ones(4)) is None for _ in range(50))
    facts.prune()
    assert len(facts) == 0


def test_a_tensor_without_a_storage_is_known_by_nothing():
    facts, sparse = Storages(), torch.eye(2).to_sparse()
    facts.lay(sparse, 1)
    facts.lay(torch.ones(1), 2)
    facts.drop(sparse)
    assert (facts.of(sparse), storage_key(sparse), storage_bytes(sparse)) == (None, None, None)
    assert storage_bytes(torch.ones(4)[1:]) == 16
