"""KERN001 must be a warning on these traces."""

from tests.timeline.programs import Program


def python_between_operators_whose_kernels_are_not_short__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 40.0)
                program.drain()
                program.think(80)
    return program.trace()


def steps_that_end_long_after_the_last_kernel__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 60.0)
            program.drain()
            program.think(3000)
    program.events = [event for event in program.events if event["ts"] < 4800 or event["name"].startswith("Profiler")]
    return program.trace()
