"""CFG002 must be a warning on these traces."""

from tests.timeline.programs import Program


def bias_then_norm__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            with program.inside("aten::conv2d", **{"Input Dims": [[8, 3, 64, 64], [16, 3, 3, 3], [16], [], [], [], []]}):
                program.operator("aten::cudnn_convolution", 80.0, runs="sm80_xmma_fprop")
                program.operator("aten::add_", 10.0)
            program.operator("aten::batch_norm", 20.0, **{"Input Dims": [[8, 16, 62, 62], [16], [16], [16], [16], [], [], [], []]})
    return program.trace()
