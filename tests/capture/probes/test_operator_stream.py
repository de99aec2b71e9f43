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
from auditor.capture.probes.operator_stream import Operator, OperatorProbe, Subscriber, subscribe
from tests.capture.drive import Drive, line_of, load
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


def test_all_are_asked_in_the_order_in_which_they_came_by_one_mode():
    heard = []
    with watched_by(Heard("a", heard), Heard("b", heard)):
        assert len(stack()) == 1
        torch.ones(2)
    assert heard == [(name, when, "ones") for when in ("before", "after") for name in "ab"]
    assert stack() == []


def test_an_operator_is_asked_for_once_and_one_that_nobody_wants_is_shown_to_nobody():
    x, one = torch.ones(2, 2), Heard()
    with watched_by(one):
        for _ in range(3):
            x.t().add(1)
    assert sorted(one.asked) == ["add", "t"]
    assert {name for _, _, name in one.heard} == {"add"}


def test_who_comes_later_or_leaves_earlier_sees_what_runs_meanwhile():
    first, second = Heard(), Heard()
    with watched_by(first) as stream:
        torch.ones(1)
        leave = stream.subscribe(second)
        torch.zeros(1)
        leave()
        leave()
        torch.empty(1)
    assert [name for _, when, name in first.heard if when == "after"] == ["ones", "zeros", "empty"]
    assert [name for _, when, name in second.heard if when == "after"] == ["zeros"]


def test_the_last_that_leaves_ends_the_stream_and_the_next_begins_another(tmp_path):
    with Drive(tmp_path) as drive:
        leave = subscribe(drive.context, Heard())
        first = drive.context.stream
        leave()
        assert (stack(), first.live) == ([], False)
        leave = subscribe(drive.context, Heard())
        assert stack() == [drive.context.stream] != [first]
        leave()
    assert stack() == []


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


def test_probes_that_subscribe_say_so_until_they_stop(tmp_path):
    class One(OperatorProbe):
        name, parts, passes, unseen = "one", ("training",), frozenset({"numbers"}), "not seen"

        def watch(self):
            self.enter(Heard())

    class Two(One):
        name = "two"

    with Drive(tmp_path, One, Two) as drive:
        with drive.running("numbers"):
            assert len(stack()) == 1
            assert [probe.watches_operators for probe in drive.probes] == [True, True]
        assert [probe.watches_operators for probe in drive.probes] == [False, False]


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


def test_a_backward_and_a_graph():
    weight = torch.ones(2, requires_grad=True)
    seen = known(lambda: (weight * 2).sum().backward(), lambda call: (call.backward, call.graph))
    assert seen[0] == (False, True)
    assert seen[-1][0] is True


def test_who_leaves_backwards_out_is_shown_the_forward_only():
    weight, one = torch.ones(2, requires_grad=True), Heard()
    one.in_backward = False
    with watched_by(one):
        (weight * 2).sum().backward()
    assert {name for _, _, name in one.heard} == {"mul", "sum", "ones_like"}


def test_the_stack_is_walked_once_for_all_and_only_if_one_asks(tmp_path):
    user = load(tmp_path, "import torch\ndef step(): return torch.ones(1)  # here\n")
    asked = []
    with watched_by(Calls(lambda call: call.site), Calls(lambda call: call.site)) as stream:
        frames = stream._context.frames
        walk = frames.user_frame
        frames.user_frame = lambda *depth: asked.append(depth) or walk(*depth)
        user.step()
        known = [each.known for each in stream._subscribers]
    assert len(asked) == len(known[0])
    assert known[0] == known[1]
    lines = {number: key[1] for key, number in frames._writer._sites.items()}
    assert lines[known[0][0]] == line_of(user, "here")
    with watched_by(Calls(lambda call: None)) as stream:
        stream._context.frames.user_frame = lambda *depth: pytest.fail("walked")
        user.step()


def test_no_line_outside_of_a_step():
    one = Calls(lambda call: (call.site, call.own_site))
    with watched_by(one) as stream:
        stream._context.in_step = False
        torch.ones(1)
    assert one.known == [(None, None)]


def test_an_operator_of_a_higher_order_has_no_name():
    operator = Operator(torch.ops.higher_order.cond)
    wanted = (None, "", False, False)
    assert (operator.schema, operator.name, operator.view, operator.writes) == wanted


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


def test_only_what_replaces_the_result_changes_it():
    class Played(Subscriber):
        def before(self, call):
            return True

        def after(self, call, noted):
            if call.operator.own_name == "_local_scalar_dense":
                call.result = 7.0

    with watched_by(Played(lambda error: pytest.fail(repr(error)))):
        assert torch.ones(1).item() == 7.0
        assert torch.ones(1).add(1).tolist() == [2.0]


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


def test_what_is_dropped_is_not_known():
    facts, x, y = Storages(), torch.ones(1), torch.ones(1)
    facts.lay(x, 1)
    facts.lay(y, 2)
    facts.drop(x[:])
    assert (facts.of(x), facts.of(y)) == (None, 2)
    facts.clear()
    assert facts.of(y) is None


def test_names_of_an_operator():
    operator = Operator(torch.ops.aten._foreach_add_.Scalar)
    names = operator.namespace, operator.own_name, operator.name
    assert names == ("aten", "_foreach_add_", "foreach_add")
    assert (operator.view, operator.writes, operator.product) == (False, True, False)
    assert Operator(torch.ops.aten.t.default).view
    assert Operator(torch.ops.aten.addmm.default).product
