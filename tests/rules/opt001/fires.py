"""OPT001 must be a warning on these traces."""

from tests.timeline.programs import Program


def eighty_parameters_one_by_one__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("SGD"):
                for _ in range(80):
                    program.operator("aten::add_", 2.0, host_us=8.0)
    return program.trace()
