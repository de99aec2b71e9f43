"""No line of this file sets benchmark mode: the cases switch it on by name, so that the place is the
convolution's.
"""

import itertools

import torch
from torch import nn

from tests.rules.cfg001.silent import TUNED
from tests.rules.programs import trained_by
from tests.rules.traces import inside, traced


def each_step_has_another_size__trace():
    return traced(inside("aten::cudnn_convolution", TUNED), count=4)


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

    def loss():
        return model(torch.ones(2, 3, next(sizes), 16, device="cuda")).mean()  # CFG001

    return _switched_on(trained_by(model, loss))
