"""Near misses: CFG001 must stay silent on all of these."""

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
