"""The states of the generators that a program shares with its libraries."""

from __future__ import annotations

import random
import sys

import torch


def random_states() -> dict[str, int]:
    """A number for each of them (``torch``: the host's, and the current GPU's where CUDA is in use)
    that is the same as long as nothing is drawn from it, and again when it is set back.
    """
    tensors = [torch.get_rng_state()]
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        tensors.append(torch.cuda.get_rng_state())
    states = {
        "torch": hash(tuple(each.numpy().tobytes() for each in tensors)),
        "random": hash(random.getstate()[1]),
    }
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        state = numpy_random.get_state(legacy=False)["state"]
        states["numpy"] = hash((state["key"].tobytes(), state["pos"]))
    return states
