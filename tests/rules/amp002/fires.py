from tests.rules.traces import operator, times, traced


def full_fp32_products_on_an_ampere__trace():
    return traced(times(10, operator("aten::addmm", 80.0, runs="ampere_sgemm_128x64_tn")))


def tf32_convolutions_beside_fp32_products__trace():
    convolution = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwc"
    product = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>"
    both = operator("aten::cudnn_convolution", 80.0, runs=convolution), operator("aten::mm", 80.0, runs=product)
    return traced(times(10, *both), device="H100")
