import argparse

import numpy as np
import torch
from torch import nn


class _Hostile:
    def __reduce__(self):
        import os

        return os.system, ("touch this-must-not-be-here",)


def whole_module_saved():
    model = nn.Linear(4, 1)
    return lambda: torch.save(model, "last.pt")


def numpy_random_state():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "numpy_rng": np.random.get_state()}, "last.pt")


def namespace_in_the_old_format():
    what = {"args": argparse.Namespace(lr=0.1)}
    return lambda: torch.save(what, "last.pt", _use_new_zipfile_serialization=False)


def pickle_that_runs_a_command():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "extra": _Hostile()}, "last.pt")
