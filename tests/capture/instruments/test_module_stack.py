"""Hooks of ours on every module: which one runs is told, and compiled ones do not see them."""

import warnings

import torch
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.dispatch_modes import run_compiled_code_eagerly
from auditor.capture.instruments.module_stack import Modules
from auditor.capture.instruments.monkeypatch import Patches

NAMES = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
)


def hooks_as_they_are() -> list[object]:
    return [
        module_hooks._has_any_global_hook,
        *(dict(getattr(module_hooks, name)) for name in NAMES),
    ]


class Inner(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen.append(modules.current)
        return super().forward(x)


seen: list[str] = []
modules = Modules()


def test_the_module_that_runs_is_known_also_in_a_compiled_one():
    model = torch.nn.Sequential(Inner(4, 4), torch.nn.Tanh())
    compiled, before, patches = (
        torch.compile(model, backend="eager"),
        hooks_as_they_are(),
        Patches(),
    )
    modules.watch(patches)
    run_compiled_code_eagerly(patches)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = compiled(torch.ones(2, 4))
        assert module_hooks._global_forward_hooks_always_called, (
            "our hooks are back after the compiled module has looked"
        )
        assert modules.that_made(out.grad_fn) == "_orig_mod.1"
        mine = module_hooks.register_module_forward_hook(lambda *_: None)
        assert module_hooks._has_any_global_hook()  # one of the user's is seen
        mine.remove()
        assert not module_hooks._has_any_global_hook()
    finally:
        patches.undo()
    assert seen == ["_orig_mod.0"]
    assert hooks_as_they_are() == before


def test_hooks_of_two_probes_are_hidden_whichever_is_taken_away_first():
    before = hooks_as_they_are()
    for order in (0, 1), (1, 0):
        both = Patches(), Patches()
        for patches in both:
            Modules().watch(patches)
        both[order[0]].undo()
        assert not module_hooks._has_any_global_hook()
        both[order[1]].undo()
        assert hooks_as_they_are() == before
