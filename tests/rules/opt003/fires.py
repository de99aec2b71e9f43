from tests.rules.traces import operator, optimizer, times, traced


def adam_with_foreach_operators__trace():
    updates = times(12, operator("aten::_foreach_addcmul_", 5.0))
    return traced(operator("aten::mm", 100.0), optimizer("Adam", updates))
