"""KERN006 must be a warning on these traces."""

from tests.timeline.programs import Program


def row_after_row__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            for _ in range(30):
                program.operator("aten::select")
                program.operator("aten::mul", 2.0)
                program.operator("aten::copy_", 2.0)
    return program.trace()


def index_inside_a_function__trace():
    program = Program()
    for _ in range(3):
        with program.step(), program.inside("Gather.forward"):
            for _ in range(12):
                program.operator("aten::index", 3.0, host_us=30.0)
    return program.trace()
