from tests.rules.traces import inside, operator, times, traced


def each_weight_converted_again__trace():
    cast = inside("aten::to", inside("aten::_to_copy", operator("aten::copy_", 30.0)))
    product = operator("aten::addmm", 60.0, runs="ampere_bf16_s16816gemm_bf16_128x64")
    return traced(times(8, cast, product))
