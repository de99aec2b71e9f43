"""CFG003 must be a warning on these traces."""

from tests.timeline.programs import Program


def _steps(transpose):
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(5):
                program.operator("aten::cudnn_convolution", 8.0, runs=transpose)
                program.operator("aten::cudnn_convolution", 60.0, runs="sm80_xmma_fprop_implicit_gemm_f16f16")
    return program.trace()


def cudnn_transposes_each_input__trace():
    return _steps("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>")


def miopen_transposes_each_input__trace():
    return _steps("batched_transpose_32x32_half")
