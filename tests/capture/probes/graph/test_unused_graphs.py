"""The probes of graphs in eval mode and of gradients with a graph."""

import torch
from auditor.rules.graph.probes.summed_losses import CreateGraphCyclesProbe
from auditor.rules.graph.probes.unused_graphs import UnusedGraphsProbe

from tests.capture.drive import Drive, line_of, load, watched


def test_a_module_is_copied_and_pickled_without_our_hook(tmp_path):
    user = load(
        tmp_path,
        """
        import copy, io, pickle, torch

        class Own:
            def __reduce_ex__(self, protocol):
                return Mixed, ()

        class Mixed(torch.nn.Module, Own):
            pass

        model, mixed = torch.nn.Sequential(torch.nn.Linear(8, 8)), Mixed().eval()
        model.eval()
        copies = []

        def step():
            copies.append(copy.deepcopy(model))
            torch.save(model, io.BytesIO())
            pickle.loads(pickle.dumps(mixed))
            model(torch.ones(4, 8))  # never
        """,
    )
    with Drive(tmp_path, UnusedGraphsProbe) as drive:
        with drive.running("loud", user.step):
            drive.step(user.step)
            assert _hooks_of(user.model) == 1  # put back when the step was over
            drive.step(lambda: user.model(torch.ones(4, 8)))
    assert [_hooks_of(each) for each in (*user.copies, user.model)] == [0, 0]
    assert "__reduce_ex__" not in vars(torch.nn.Module)


def _hooks_of(model: torch.nn.Module) -> int:
    return len(model._forward_hooks)


def test_what_our_hook_raises_does_not_reach_the_user(tmp_path):
    user, drive = watched(
        tmp_path,
        """
        import torch

        class Model(torch.nn.Linear):
            def forward(self, x):
                nested = [super().forward(x)]
                nested.append(nested)
                return nested

        model = Model(8, 8).eval()

        def step():
            model(torch.ones(4, 8))
        """,
        UnusedGraphsProbe,
    )
    assert drive.rows("evals") == []


def test_leaves_that_a_cycle_keeps_are_counted_and_weighed(tmp_path):
    user, drive = watched(
        tmp_path,
        """
        import torch

        def step():
            w = torch.ones(1000, requires_grad=True)
            w.pow(3).sum().backward(create_graph=True)  # keeps
        """,
        CreateGraphCyclesProbe,
        steps=4,
    )
    rows = drive.rows("cycles")
    assert [(row["step"], row["leaves"], row["at_line"]) for row in rows] == [
        (n, n, line_of(user, "keeps")) for n in (1, 2, 3)
    ]
    held = [row["held_bytes"] for row in rows]
    assert held[0] > 0 and held[1] == 2 * held[0] and held[2] == 3 * held[0]
