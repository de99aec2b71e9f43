"""Near misses: KERN005 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def flash_attention__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::bmm", 20.0)
            program.operator("aten::_scaled_dot_product_flash_attention", 100.0, runs="flash_fwd_kernel")
            program.operator("aten::bmm", 20.0)
    return program.trace()


def softmax_of_a_classifier__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::bmm", 40.0)
            program.operator("aten::addmm", 40.0)
            program.operator("aten::_softmax", 60.0)
    return program.trace()


def a_small_share_of_the_step__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 3000.0)
            program.operator("aten::bmm", 40.0)
            program.operator("aten::_softmax", 60.0)
            program.operator("aten::bmm", 40.0)
    return program.trace()


def another_product_in_between__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::bmm", 40.0)
            program.operator("aten::_softmax", 60.0)
            program.operator("aten::mm", 100.0)
            program.operator("aten::bmm", 40.0)
    return program.trace()
