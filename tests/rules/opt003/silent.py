from tests.rules.traces import drain, operator, optimizer, times, traced


def _steps(name, stepping, count=12, product=100.0):
    updates = times(count, operator(stepping, 5.0))
    return traced(operator("aten::mm", product), drain, optimizer(name, updates))


def it_is_fused__trace():
    return _steps("AdamW", "aten::_fused_adamw_", 1)


def an_optimizer_without_a_fused_kernel__trace():
    return _steps("Adadelta", "aten::_foreach_addcmul_")


def sgd_had_none_before_torch_2_3__trace():
    return _steps("SGD", "aten::_foreach_add_")


def a_small_part_of_a_long_step__trace():
    return _steps("Adam", "aten::_foreach_addcmul_", product=9000.0)


def an_optimizer_of_the_host_beside_a_model_on_the_device__trace():
    updates = times(12, operator("aten::_foreach_addcmul_"))
    return traced(operator("aten::mm", 100.0), optimizer("Adam", updates))


def no_device_at_all__trace():
    return traced(optimizer("Adam", operator("aten::_foreach_addcmul_")))
