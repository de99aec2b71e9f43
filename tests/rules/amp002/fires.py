"""AMP002 must be a warning on these traces."""

from tests.timeline.programs import Program


def full_fp32_products_on_an_ampere__trace():
    program = Program("A100")
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::addmm", 80.0, runs="ampere_sgemm_128x64_tn")
    return program.trace()


def tf32_convolutions_beside_fp32_products__trace():
    program = Program("H100")
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::cudnn_convolution", 80.0, runs="sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwc")
                program.operator("aten::mm", 80.0, runs="void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>")
    return program.trace()
