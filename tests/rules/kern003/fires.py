"""KERN003 must be a warning on these traces."""

from tests.timeline.programs import Program


def operators_of_two_microseconds__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(40):
                program.operator("aten::add", 2.0, host_us=20.0)
    return program.trace()
