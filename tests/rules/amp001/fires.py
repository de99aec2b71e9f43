"""AMP001 must be a warning on these traces."""

from tests.timeline.programs import Program


def fp32_convolutions_on_a_volta__trace():
    program = Program("V100")
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::cudnn_convolution", 80.0, runs="volta_scudnn_128x64_relu_interior_nn_v1")
                program.operator("aten::relu", 20.0)
    return program.trace()


def fp32_products_on_a_volta__trace():
    program = Program("V100")
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::addmm", 80.0, runs="volta_sgemm_128x64_tn")
    return program.trace()
