"""Near misses: OPT001 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def _steps(operator, times, **more):
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("AdamW"):
                for _ in range(times):
                    program.operator(operator, 5.0, **more)
    return program.trace()


def foreach_in_many_chunks__trace():
    return _steps("aten::_foreach_add_", 12, kernels=6)


def fused_in_many_chunks__trace():
    return _steps("aten::_fused_adamw_", 10, kernels=6)


def a_model_of_four_parameters__trace():
    return _steps("aten::add_", 12)


def the_same_operators_outside_of_the_optimizer__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(80):
                program.operator("aten::add_", 5.0)
            with program.optimizer("SGD"):
                program.operator("aten::_foreach_add_", 5.0)
    return program.trace()
