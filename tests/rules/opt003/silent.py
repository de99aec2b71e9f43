from tests.timeline.programs import Program


def _steps(name, operator, times=12, product=100.0):
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", product)
            program.drain()
            with program.optimizer(name):
                for _ in range(times):
                    program.operator(operator, 5.0)
    return program.trace()


def it_is_fused__trace():
    return _steps("AdamW", "aten::_fused_adamw_", 1)


def an_optimizer_without_a_fused_kernel__trace():
    return _steps("Adadelta", "aten::_foreach_addcmul_")


def sgd_had_none_before_torch_2_3__trace():
    return _steps("SGD", "aten::_foreach_add_")


def a_small_part_of_a_long_step__trace():
    return _steps("Adam", "aten::_foreach_addcmul_", product=9000.0)


def an_optimizer_of_the_host_beside_a_model_on_the_device__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            with program.optimizer("Adam"):
                for _ in range(12):
                    program.operator("aten::_foreach_addcmul_")
    return program.trace()


def no_device_at_all__trace():
    program = Program()
    for _ in range(3):
        with program.step(), program.optimizer("Adam"):
            program.operator("aten::_foreach_addcmul_")
    return program.trace()
