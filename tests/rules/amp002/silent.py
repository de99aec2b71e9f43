"""Near misses: AMP002 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def _runs(device, operator, kernel):
    program = Program(device)
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator(operator, 80.0, runs=kernel)
    return program


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
    program = Program("A100")
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 80.0, runs="ampere_sgemm_128x64_tn")
            program.drain()
            program.think(5000)
    return program.trace()
