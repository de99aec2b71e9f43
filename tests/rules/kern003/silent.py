from tests.rules.traces import operator, optimizer, times, traced


def short_kernels_behind_a_full_queue__trace():
    return traced(operator("aten::mm", 900.0), times(40, operator("aten::add", 5.0, host_us=8.0)))


def one_parameter_after_the_other_is_the_optimizer_rules_finding__trace():
    adding = times(80, operator("aten::add_", 2.0, host_us=20.0))
    return traced(operator("aten::mm", 60.0), optimizer("SGD", adding))


def a_graph_that_was_launched_once__trace():
    def replayed(program):
        program.free = max(program.free, program.host)
        program.events.append({**program.events[-1], "ts": program.free, "dur": 4.0})
        program.free += 4.0

    return traced(operator("aten::mm", 3.0), times(60, replayed))


def long_kernels__trace():
    return traced(times(30, operator("aten::mm", 50.0, host_us=20.0)))
