from tests.rules.traces import drain, operator, steps, think, times, traced


def python_between_operators_whose_kernels_are_not_short__trace():
    return traced(times(20, operator("aten::mm", 40.0), drain, think(80)))


def steps_that_end_long_after_the_last_kernel__trace():
    program = steps(times(20, operator("aten::mm", 60.0)), drain, think(3000))
    program.events = [event for event in program.events if event["ts"] < 4800 or event["name"].startswith("Profiler")]
    return program.trace()
