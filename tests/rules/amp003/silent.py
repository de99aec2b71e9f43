from tests.timeline.programs import Program

HALF = ["c10::BFloat16", "c10::BFloat16"]


def _product(sizes, kinds, other=50.0):
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 300.0, runs="ampere_bf16_s16816gemm", **{"Input Dims": sizes, "Input type": kinds})
            program.operator("aten::relu", other)
    return program.trace()


def padded_to_50304__trace():
    return _product([[2048, 1024], [1024, 50304]], HALF)


def an_odd_number_of_rows_is_the_batch__trace():
    return _product([[2047, 1024], [1024, 4096]], HALF)


def fp32_products_have_no_such_tiles__trace():
    return _product([[2048, 1024], [1024, 50257]], ["float", "float"])


def a_small_share_of_the_kernels__trace():
    return _product([[2048, 1024], [1024, 50257]], HALF, other=9000.0)


def no_shapes_were_recorded__trace():
    program = Program()
    with program.step():
        program.operator("aten::mm", 300.0, runs="ampere_bf16_s16816gemm")
    return program.trace()
