import itertools

import torch
from torch import nn

from tests.timeline.kineto import call
from tests.timeline.programs import Program


def _step(program, tuned, operator="aten::cudnn_convolution", waits="cudaEventSynchronize"):
    with program.step(), program.inside(operator):
        for _ in range(6):
            program.launch("implicit_convolve_sgemm", 50.0)
            if tuned:
                program.events.append(call(waits, program.host, 60))
                program.think(62)


def warm_up_of_the_first_step__trace():
    program = Program()
    for number in range(6):
        _step(program, number == 0)
    return program.trace()


def the_first_half_of_a_short_trace__trace():
    program = Program()
    for number in range(6):
        _step(program, number < 3)
    return program.trace()


def fixed_sizes__trace():
    program = Program()
    for _ in range(4):
        _step(program, False)
    return program.trace()


def an_event_that_the_program_waits_for__trace():
    program = Program()
    for _ in range(4):
        _step(program, True, operator="MyTimer.stop")
    return program.trace()


def a_read_inside_a_custom_convolution__trace():
    program = Program()
    for _ in range(4):
        _step(program, True, waits="cudaStreamSynchronize")
    return program.trace()


def one_step_alone_tells_nothing__trace():
    program = Program()
    _step(program, True)
    return program.trace()


def _rehearsed(sizes, *, benchmark=True):
    model = nn.Conv2d(3, 4, 3).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run():
        before = torch.backends.cudnn.benchmark
        setattr(torch.backends.cudnn, "benchmark", benchmark)
        optimizer.zero_grad()
        model(torch.ones(2, 3, next(sizes), 16, device="cuda")).mean().backward()
        optimizer.step()
        setattr(torch.backends.cudnn, "benchmark", before)

    return run


def three_sizes_in_turn__rehearsal():
    return _rehearsed(itertools.cycle((16, 24, 32)))


def sizes_that_are_met_for_the_last_time_early__rehearsal():
    return _rehearsed(itertools.chain(range(16, 24), itertools.cycle(range(16, 24))))


def benchmark_mode_is_off__rehearsal():
    return _rehearsed(itertools.count(16), benchmark=False)


def a_host_tensor_in_the_convolution__rehearsal():
    model, head, sizes = nn.Conv2d(3, 4, 3), nn.Linear(4, 1).cuda(), itertools.count(16)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)

    def run():
        before = torch.backends.cudnn.benchmark
        setattr(torch.backends.cudnn, "benchmark", True)
        optimizer.zero_grad()
        features = model(torch.ones(2, 3, next(sizes), 16)).mean((2, 3))
        head(features.cuda()).mean().backward()
        optimizer.step()
        setattr(torch.backends.cudnn, "benchmark", before)

    return run
