"""Near misses: KERN001 must stay silent, or a note, on all of these."""

from tests.timeline.kineto import note, text, training
from tests.timeline.programs import Program


def a_busy_device__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::mm", 100.0)
    return program.trace()


def a_step_that_waits_for_its_loader_is_that_rules_finding__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            begin = program.host
            program.think(3000)
            program.events.append(note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 3000))
            for _ in range(20):
                program.operator("aten::mm", 60.0)
    return program.trace()


def short_kernels_are_the_launch_rules_finding__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::add", 2.0, host_us=40.0)
    return program.trace()


def a_toy_with_three_kernels_a_step__trace():
    return text(training(3))


def a_trace_without_marked_steps__trace():
    program = Program()
    for _ in range(60):
        program.operator("aten::mm", 40.0)
        program.drain()
        program.think(80)
    return program.trace()
