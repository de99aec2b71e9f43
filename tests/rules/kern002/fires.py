"""KERN002 must be a warning on these traces."""

from tests.timeline.programs import Program


def the_host_computes_on_the_cpu__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 60.0)
            program.drain()
            program.operator("aten::sort", host_us=1500.0)
            program.operator("aten::mm", 60.0)
    return program.trace()


def a_function_between_two_operators__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 60.0)
            program.drain()
            program.think(900, "trainer.py(12): write_log")
            program.operator("aten::mm", 60.0)
    return program.trace()
