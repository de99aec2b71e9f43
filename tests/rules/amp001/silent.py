from tests.rules.traces import drain, operator, steps, think, times, traced


def _products(device, kernel, other=20.0):
    return steps(times(10, operator("aten::addmm", 80.0, runs=kernel), operator("aten::relu", other)), device=device)


def sixteen_bit_products_are_there__trace():
    program = _products("V100", "volta_sgemm_128x64_tn")
    with program.step():
        program.operator("aten::mm", 200.0, runs="volta_fp16_s884gemm_fp16_128x64")
    return program.trace()


def a_device_without_tensor_cores__trace():
    return _products("GP100", "maxwell_sgemm_128x64_tn").trace()


def tf32_on_an_ampere_is_a_first_step__trace():
    return _products("A100", "ampere_tf32_s1688gemm_128x64").trace()


def products_are_a_small_share_of_the_kernels__trace():
    return _products("V100", "volta_sgemm_128x64_tn", other=900.0).trace()


def products_are_a_small_share_of_the_step__trace():
    product = operator("aten::addmm", 80.0, runs="volta_sgemm_128x64_tn")
    return traced(product, drain, think(5000), device="V100")


def kernels_of_unknown_names__trace():
    return _products("V100", "my_own_product_kernel").trace()
