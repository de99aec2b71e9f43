from tests.rules.traces import drain, operator, think, times, traced

LAST = operator("aten::mm", 60.0)


def the_host_computes_on_the_cpu__trace():
    return traced(times(20, LAST), drain, operator("aten::sort", host_us=1500.0), LAST)


def a_function_between_two_operators__trace():
    return traced(times(20, LAST), drain, think(900, "trainer.py(12): write_log"), LAST)
