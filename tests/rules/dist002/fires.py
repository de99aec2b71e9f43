from tests.rules.traces import operator, traced


def gradients_go_over_gloo__trace():
    reduced = operator("gloo:all_reduce", host_us=300.0)
    return traced(operator("aten::mm", 100.0), reduced, backend='"gloo"')
