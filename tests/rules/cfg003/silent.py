from tests.rules.traces import operator, times, traced
from tests.timeline.programs import Program


def _steps(other, us):
    convolution = operator("aten::cudnn_convolution", 60.0, runs="sm80_xmma_fprop_implicit_gemm_f16f16")
    return traced(times(5, convolution), operator("aten::cudnn_convolution", us, runs=other))


def one_transpose_at_the_entrance__trace():
    return _steps("void cudnn::ops::nchwToNhwcKernel<float>", 8.0)


def a_transpose_of_the_models_own__trace():
    return _steps("void at::native::transpose_readonly_tile_kernel", 60.0)


def channels_last_convolutions__trace():
    return _steps("sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_nhwc", 60.0)


def a_trace_that_marks_no_steps__trace():
    program = Program()
    for _ in range(5):
        program.operator("aten::cudnn_convolution", 20.0, runs="void cudnn::ops::nchwToNhwcKernel<float>")
        program.operator("aten::cudnn_convolution", 60.0, runs="sm80_xmma_fprop")
    return program.trace()
