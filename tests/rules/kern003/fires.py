from tests.rules.traces import operator, times, traced


def operators_of_two_microseconds__trace():
    return traced(times(40, operator("aten::add", 2.0, host_us=20.0)))
