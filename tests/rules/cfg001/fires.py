"""CFG001 must be a warning on these traces, and report the marked line of a rehearsal.

No line of this file sets benchmark mode: the cases switch it on by name, so that the place is the
convolution's.
"""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from tests.timeline.kineto import call
from tests.timeline.programs import Program


def each_step_has_another_size__trace():
    program = Program()
    for _ in range(4):
        with program.step(), program.inside("aten::cudnn_convolution"):
            for _ in range(6):
                program.launch("implicit_convolve_sgemm", 50.0)
                program.events.append(call("cudaEventSynchronize", program.host, 60))
                program.think(62)
    return program.trace()


def _switched_on(step):
    def run():
        before = torch.backends.cudnn.benchmark
        setattr(torch.backends.cudnn, "benchmark", True)
        try:
            return step()
        finally:
            setattr(torch.backends.cudnn, "benchmark", before)

    return run


def every_batch_has_its_own_size__rehearsal():
    model, sizes = nn.Conv2d(3, 4, 3).cuda(), itertools.count(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 3, next(sizes), 16, device="cuda")).mean().backward()  # CFG001
        optimizer.step()

    return _switched_on(step)


def lengths_of_sound_by_the_function__rehearsal():
    weight = torch.randn(4, 1, 5, device="cuda", requires_grad=True)
    optimizer, sizes = torch.optim.SGD([weight], lr=0.01), itertools.count(100, 7)

    def step():
        optimizer.zero_grad()
        F.conv1d(torch.ones(2, 1, next(sizes), device="cuda"), weight).mean().backward()  # CFG001
        optimizer.step()

    return _switched_on(step)
