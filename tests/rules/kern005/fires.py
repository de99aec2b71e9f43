from tests.rules.traces import operator, traced


def scores_softmax_values__trace():
    product = operator("aten::bmm", 40.0)
    scaled = operator("aten::div", 10.0), operator("aten::_softmax", 60.0)
    return traced(operator("aten::mm", 100.0), product, *scaled, product)


def one_layer_in_pieces_beside_a_fused_one__trace():
    return traced(
        operator("aten::_scaled_dot_product_flash_attention", 60.0, runs="flash_fwd_kernel"),
        operator("aten::baddbmm", 40.0),
        operator("aten::_softmax", 60.0),
        operator("aten::bmm", 40.0),
    )
