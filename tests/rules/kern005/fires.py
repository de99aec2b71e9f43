"""KERN005 must be a warning on these traces."""

from tests.timeline.programs import Program


def scores_softmax_values__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            program.operator("aten::bmm", 40.0)
            program.operator("aten::div", 10.0)
            program.operator("aten::_softmax", 60.0)
            program.operator("aten::bmm", 40.0)
    return program.trace()


def one_layer_in_pieces_beside_a_fused_one__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::_scaled_dot_product_flash_attention", 60.0, runs="flash_fwd_kernel")
            program.operator("aten::baddbmm", 40.0)
            program.operator("aten::_softmax", 60.0)
            program.operator("aten::bmm", 40.0)
    return program.trace()
