import itertools

import torch
from torch import nn

from tests.rules.programs import trained_by
from tests.rules.traces import inside, think, times, traced
from tests.timeline.kineto import call
from tests.timeline.programs import Program


def _launch(program):
    program.launch("implicit_convolve_sgemm", 50.0)


def _tuning(waits):
    def wait(program):
        program.events.append(call(waits, program.host, 60))

    return times(6, _launch, wait, think(62))


FIXED, TUNED = times(6, _launch), _tuning("cudaEventSynchronize")


def _tuned_first(first):
    program = Program()
    for number in range(6):
        with program.step():
            inside("aten::cudnn_convolution", TUNED if number < first else FIXED)(program)
    return program.trace()


def warm_up_of_the_first_step__trace():
    return _tuned_first(1)


def the_first_half_of_a_short_trace__trace():
    return _tuned_first(3)


def fixed_sizes__trace():
    return traced(inside("aten::cudnn_convolution", FIXED), count=4)


def an_event_that_the_program_waits_for__trace():
    return traced(inside("MyTimer.stop", TUNED), count=4)


def a_read_inside_a_custom_convolution__trace():
    return traced(inside("aten::cudnn_convolution", _tuning("cudaStreamSynchronize")), count=4)


def one_step_alone_tells_nothing__trace():
    return traced(inside("aten::cudnn_convolution", TUNED), count=1)


def _rehearsed(sizes, model=None, benchmark=True, device="cuda"):
    model = model or nn.Conv2d(3, 4, 3).cuda()
    step = trained_by(model, lambda: model(torch.ones(2, 3, next(sizes), 16, device=device)).mean())

    def run():
        before = torch.backends.cudnn.benchmark
        setattr(torch.backends.cudnn, "benchmark", benchmark)
        step()
        setattr(torch.backends.cudnn, "benchmark", before)

    return run


def three_sizes_in_turn__rehearsal():
    return _rehearsed(itertools.cycle((16, 24, 32)))


def sizes_that_are_met_for_the_last_time_early__rehearsal():
    return _rehearsed(itertools.chain(range(16, 24), itertools.cycle(range(16, 24))))


def benchmark_mode_is_off__rehearsal():
    return _rehearsed(itertools.count(16), benchmark=False)


def a_host_tensor_in_the_convolution__rehearsal():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 1).cuda()

        def forward(self, x):
            return self.head(self.features(x).mean((2, 3)).cuda())

    return _rehearsed(itertools.count(16), Model(), device="cpu")
