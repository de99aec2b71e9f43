"""Near misses: KERN004 must stay silent on all of these."""

from tests.timeline.programs import Program


def five_hundred_kernels_ahead__trace():
    program = Program()
    with program.step():
        for _ in range(500):
            program.operator("aten::add", 100.0, host_us=6.0)
    return program.trace()


def a_slow_launch_with_an_empty_queue__trace():
    program = Program()
    with program.step():
        for _ in range(1200):
            program.operator("aten::add", 2.0, host_us=100.0)
            program.events[-2]["dur"] = 98.0
    return program.trace()


def far_ahead_and_never_held__trace():
    program = Program()
    with program.step():
        for _ in range(1200):
            program.operator("aten::add", 100.0, host_us=6.0)
    return program.trace()
