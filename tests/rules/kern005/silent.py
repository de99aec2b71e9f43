from tests.rules.traces import operator, traced

PRODUCT, SOFTMAX = operator("aten::bmm", 40.0), operator("aten::_softmax", 60.0)


def flash_attention__trace():
    product = operator("aten::bmm", 20.0)
    fused = operator("aten::_scaled_dot_product_flash_attention", 100.0, runs="flash_fwd_kernel")
    return traced(product, fused, product)


def softmax_of_a_classifier__trace():
    return traced(PRODUCT, operator("aten::addmm", 40.0), SOFTMAX)


def a_small_share_of_the_step__trace():
    return traced(operator("aten::mm", 3000.0), PRODUCT, SOFTMAX, PRODUCT)


def another_product_in_between__trace():
    return traced(PRODUCT, SOFTMAX, operator("aten::mm", 100.0), PRODUCT)
