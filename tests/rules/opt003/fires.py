from tests.timeline.programs import Program


def adam_with_foreach_operators__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("Adam"):
                for _ in range(12):
                    program.operator("aten::_foreach_addcmul_", 5.0)
    return program.trace()
