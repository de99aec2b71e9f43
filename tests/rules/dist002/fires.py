"""DIST002 must be a warning on these traces."""

from tests.timeline.programs import Program


def gradients_go_over_gloo__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            program.operator("gloo:all_reduce", host_us=300.0)
    return program.trace(backend='"gloo"')
