from tests.rules.traces import drain, loader, operator, think, times, traced
from tests.timeline.kineto import text, training
from tests.timeline.programs import Program


def a_busy_device__trace():
    return traced(times(30, operator("aten::mm", 100.0)))


def a_step_that_waits_for_its_loader_is_that_rules_finding__trace():
    return traced(loader(3000), times(20, operator("aten::mm", 60.0)))


def short_kernels_are_the_launch_rules_finding__trace():
    return traced(times(30, operator("aten::add", 2.0, host_us=40.0)))


def a_toy_with_three_kernels_a_step__trace():
    return text(training(3))


def a_trace_without_marked_steps__trace():
    program = Program()
    times(60, operator("aten::mm", 40.0), drain, think(80))(program)
    return program.trace()
