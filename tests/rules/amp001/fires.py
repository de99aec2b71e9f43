from tests.rules.traces import operator, times, traced


def fp32_convolutions_on_a_volta__trace():
    kernel = "volta_scudnn_128x64_relu_interior_nn_v1"
    pair = operator("aten::cudnn_convolution", 80.0, runs=kernel), operator("aten::relu", 20.0)
    return traced(times(10, *pair), device="V100")


def fp32_products_on_a_volta__trace():
    return traced(times(10, operator("aten::addmm", 80.0, runs="volta_sgemm_128x64_tn")), device="V100")
