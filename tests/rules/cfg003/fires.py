from tests.rules.traces import operator, times, traced


def _steps(transpose):
    kernels = transpose, "sm80_xmma_fprop_implicit_gemm_f16f16"
    parts = [operator("aten::cudnn_convolution", us, runs=each) for us, each in zip((8.0, 60.0), kernels, strict=True)]
    return traced(times(5, *parts))


def cudnn_transposes_each_input__trace():
    return _steps("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>")


def miopen_transposes_each_input__trace():
    return _steps("batched_transpose_32x32_half")
