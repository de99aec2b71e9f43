"""KERN004 must report these traces."""

from tests.timeline.programs import Program


def twelve_hundred_kernels_ahead__trace():
    program = Program()
    with program.step():
        for _ in range(1100):
            program.operator("aten::add", 100.0, host_us=6.0)
        for _ in range(100):
            program.operator("aten::add", 100.0, host_us=100.0)
            program.events[-2]["dur"] = 98.0
    return program.trace()
