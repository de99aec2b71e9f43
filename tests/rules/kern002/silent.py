from tests.rules.traces import drain, loader, operator, think, times, traced
from tests.timeline.programs import Program

SHORT, LONG = operator("aten::mm", 60.0), operator("aten::mm", 200.0)


def the_device_works_meanwhile__trace():
    return traced(times(20, LONG), think(1500, "trainer.py(12): write_log"), SHORT)


def a_gap_in_which_there_is_no_batch__trace():
    return traced(drain, loader(1500), times(20, SHORT))


def gaps_between_launches_are_short__trace():
    return traced(times(30, operator("aten::add", 3.0, host_us=60.0)))


def once_in_a_long_step__trace():
    return traced(times(50, LONG), drain, think(600), LONG)


def a_checkpoint_in_one_step_of_six__trace():
    program = Program()
    for number in range(6):
        with program.step():
            save = think(5000 if number == 3 else 5, "trainer.py(40): save")
            times(1, times(20, SHORT), drain, save, SHORT)(program)
    return program.trace()
