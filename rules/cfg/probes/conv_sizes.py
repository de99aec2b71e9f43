"""Sizes that convolutions on the device have not met before, step after step: cuDNN's benchmark
mode tries its algorithms for each.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.nn import functional

from auditor.capture.probes.base import Context, Probe

from ..rows import ConvSizesRow

CONVOLUTIONS = (
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)
MOST_SIZES = 10_000
"""Sizes that are remembered; after so many nothing is new any more."""


class ConvSizesProbe(Probe):
    """Writes ``conv_sizes``, one row for each step with a convolution on the device.

    It is told of calls of torch.nn.functional, which modules make too. Nothing of a tensor is read
    but its shape and dtype. The warm-up only learns which sizes there are.
    """

    name = "conv_sizes"
    parts = ("conv_sizes",)
    passes = frozenset({"warmup", "loud"})
    in_runs = False  # a trace of a real GPU shows the searching itself
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._met: set[Hashable] = set()
        self._begin()

    def _begin(self) -> None:
        self._calls, self._new, self._benchmark = 0, 0, True
        self._first: tuple[int | None, list[int]] | None = None

    def start(self) -> None:
        super().start()
        for name in CONVOLUTIONS:
            self._patches.around(functional, name, before=self._convolves)

    def stop(self) -> None:
        super().stop()
        self._begin()

    def _convolves(self, *args: Any, **kwargs: Any) -> None:
        given = [*args, *kwargs.values()]
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        if not self.context.in_step or len(tensors) < 2 or not tensors[0].is_cuda:
            return
        self._calls += 1
        cudnn = torch.backends.cudnn
        self._benchmark = self._benchmark and bool(cudnn.benchmark and cudnn.enabled)
        sizes = tuple((tuple(each.shape), each.dtype) for each in tensors[:2])
        others = tuple(str(each) for each in given if not isinstance(each, torch.Tensor))
        key = sizes, others
        if key in self._met or len(self._met) >= MOST_SIZES:
            return
        self._met.add(key)
        self._new += 1
        if self._first is None:
            self._first = self.context.frames.here(), list(tensors[0].shape)

    def step_end(self) -> None:
        if self._calls and self.context.pass_name == "loud":
            at, shape = self._first or (None, [])
            row = ConvSizesRow(
                at=at, n=self._calls, new=self._new, shape=shape, benchmark=self._benchmark
            )
            self.context.add(row)
        self._begin()
