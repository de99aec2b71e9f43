from tests.rules.traces import drain, operator, steps, think, times, traced


def _runs(device, name, kernel):
    return steps(times(10, operator(name, 80.0, runs=kernel)), device=device)


def tf32_products__trace():
    return _runs("A100", "aten::mm", "ampere_sgemm_tf32_s1688gemm_128x64").trace()


def a_device_without_tf32__trace():
    return _runs("V100", "aten::mm", "volta_sgemm_128x64_nn").trace()


def fp32_convolutions_are_cudnns_choice__trace():
    return _runs("A100", "aten::cudnn_convolution", "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1").trace()


def one_fp32_product_among_tf32_ones__trace():
    program = _runs("A100", "aten::mm", "ampere_tf32_s1688gemm_128x64")
    with program.step():
        program.operator("aten::mm", 900.0, runs="ampere_sgemm_128x64_tn")
    return program.trace()


def bf16_products__trace():
    return _runs("H100", "aten::mm", "nvjet_tst_128x256_64x4_2x1_v_bz_TNT").trace()


def a_step_that_is_mostly_idle__trace():
    return traced(operator("aten::mm", 80.0, runs="ampere_sgemm_128x64_tn"), drain, think(5000))
