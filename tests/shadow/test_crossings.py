"""Every wait is found at its line, and nothing else is."""

import functools
import inspect
import warnings
from collections import Counter
from contextlib import nullcontext

import pytest
import torch

from auditor.capture.probes.operator_stream import Subscriber
from auditor.capture.shadow import shadow_cuda
from tests.capture.probes.sync import sync_zoo
from tests.capture.streams import watched_by
from tests.shadow import constructs
from tests.shadow.listening import Heard, marked

RAISES_AS_ON_CUDA = {
    "spike_np_mean": TypeError,
    "np_asarray": TypeError,
    "quiet_quantile": RuntimeError,
}
"""Snippets of the CPU's zoo that hand a device tensor to numpy, or mix devices."""

MOVES_HERE = {
    *("transformer_mask_check", "batch_norm_counter", "host_batch_before_it_moves"),
    *("host_dataset", "host_loader_internals", "host_packed_lengths", "host_lstm"),
}
"""Snippets whose blocking copies to the device the CPU's zoo does not mark."""


WAITS_BACKWARD = {"quiet_backward_of_a_maximum": "nonzero"}
"""Snippets whose backward waits on CUDA only (``prod`` looks for zeros), and by what."""


@functools.cache
def lines_of(snippet):
    source, first = inspect.getsourcelines(snippet)
    return range(first, first + len(source))


def of(snippets, name, wanted):
    lines = lines_of(snippets[name])
    return Counter({key: times for key, times in wanted.items() if key[0] in lines})


def waits(module, snippet, error=None, around=nullcontext):
    heard = Heard(module.__file__)
    with warnings.catch_warnings(), shadow_cuda(heard):
        warnings.simplefilter("ignore")
        lab = module.Lab("cuda")
        heard.forget()
        if error is None:
            with around():
                snippet(lab)
        else:
            with pytest.raises(error):
                snippet(lab)
    return heard.blocking()


CONSTRUCTS = {snippet.__name__: snippet for snippet in constructs.SNIPPETS}
CPU_ZOO = {snippet.__name__: snippet for snippet in sync_zoo.SNIPPETS}


def watched():
    """Under a mode over every operator, as in the precision pass."""
    return watched_by(Subscriber(on_error=lambda error: pytest.fail(str(error))))


@pytest.mark.parametrize("around", [nullcontext, watched])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_construct(name, around):
    assert waits(constructs, CONSTRUCTS[name], around=around) == of(
        CONSTRUCTS, name, marked(constructs)
    )


@pytest.mark.parametrize("name", [name for name in CPU_ZOO if name not in RAISES_AS_ON_CUDA])
def test_construct_of_the_cpu_zoo(name):
    got = waits(sync_zoo, CPU_ZOO[name])
    if name in MOVES_HERE:
        got = Counter({key: times for key, times in got.items() if key[1] != "h2d"})
    wanted = of(CPU_ZOO, name, marked(sync_zoo))
    if (
        name == "host_buffer_that_receives"
    ):  # pageable: CUDA waits for it whatever non_blocking says
        assert [kind for _, kind in got] == ["to_cpu"]
    elif name in WAITS_BACKWARD:
        assert [kind for _, kind in got] == [WAITS_BACKWARD[name]]
    else:
        assert got == wanted | got_in_classes(got)


def got_in_classes(got):
    """Marks inside the zoo's classes, which the snippets use."""
    marks = marked(sync_zoo)
    inside = {
        key for key in marks if not any(key[0] in lines_of(snippet) for snippet in CPU_ZOO.values())
    }
    return Counter({key: times for key, times in got.items() if key in inside})


@pytest.mark.parametrize("name", RAISES_AS_ON_CUDA)
def test_raises_as_on_cuda(name):
    waits(sync_zoo, CPU_ZOO[name], RAISES_AS_ON_CUDA[name])


def facts(action):
    heard = Heard()
    with shadow_cuda(heard):
        action()
    return heard.crossings


def test_bytes_and_flags_of_copies():
    (up,) = facts(lambda: torch.ones(4, 8).cuda())
    wanted = ("copy", "h2d", 128, False, True)
    assert (up.kind, up.direction, up.nbytes, up.pinned, up.blocking) == wanted
    (pinned,) = facts(lambda: torch.ones(4, 8).pin_memory().to("cuda", non_blocking=True))
    assert (pinned.nbytes, pinned.pinned, pinned.blocking) == (128, True, False)
    (number,) = facts(lambda: torch.tensor([1.0, 2.0], device="cuda"))
    assert (number.nbytes, number.constant, number.operator) == (8, True, "torch.tensor")


def test_a_conversion_runs_on_the_host_only_in_a_blocking_copy_up():
    """Copy.cu: ``non_blocking ? kCUDA : kCPU`` is where dtypes are converted."""
    (blocking,) = facts(lambda: torch.ones(8).to("cuda", torch.float16))
    (staged,) = facts(lambda: torch.ones(8).to("cuda", torch.float16, non_blocking=True))
    assert (blocking.nbytes, staged.nbytes) == (16, 32)
    down = facts(lambda: torch.ones(8, device="cuda").to("cpu", torch.float16))
    assert down[0].nbytes == 32
