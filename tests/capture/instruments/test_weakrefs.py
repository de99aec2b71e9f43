"""A tensor that a weak reference brings back stays usable; one that is gone is gone."""

import gc
import weakref

import torch

from auditor.capture.instruments.live_objects import alive


def test_what_only_cpp_holds_is_brought_back():
    weight = torch.nn.Parameter(torch.ones(3))
    (weight * 2).sum().backward()
    gradient = weakref.ref(weight.grad)  # its Python object has no owner in Python
    gc.collect()
    found = alive(gradient)
    assert found is weight.grad
    weight.grad = None
    gc.collect()
    assert found.tolist() == [2.0, 2.0, 2.0]
    del found
    gc.collect()
    assert alive(gradient) is None
