from tests.rules.traces import operator, traced

HALF = ["c10::BFloat16", "c10::BFloat16"]


def _product(sizes, kinds, other=50.0):
    shapes = {"Input Dims": sizes, "Input type": kinds}
    return traced(
        operator("aten::mm", 300.0, runs="ampere_bf16_s16816gemm", **shapes), operator("aten::relu", other)
    )


def padded_to_50304__trace():
    return _product([[2048, 1024], [1024, 50304]], HALF)


def an_odd_number_of_rows_is_the_batch__trace():
    return _product([[2047, 1024], [1024, 4096]], HALF)


def fp32_products_have_no_such_tiles__trace():
    return _product([[2048, 1024], [1024, 50257]], ["float", "float"])


def a_small_share_of_the_kernels__trace():
    return _product([[2048, 1024], [1024, 50257]], HALF, other=9000.0)


def no_shapes_were_recorded__trace():
    return traced(operator("aten::mm", 300.0, runs="ampere_bf16_s16816gemm"))
