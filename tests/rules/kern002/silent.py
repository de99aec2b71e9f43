"""Near misses: KERN002 must stay silent, or a note, on all of these."""

from tests.timeline.kineto import note
from tests.timeline.programs import Program


def the_device_works_meanwhile__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 200.0)
            program.think(1500, "trainer.py(12): write_log")
            program.operator("aten::mm", 60.0)
    return program.trace()


def a_gap_in_which_there_is_no_batch__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.drain()
            begin = program.host
            program.think(1500)
            program.events.append(note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begin, 1500))
            for _ in range(20):
                program.operator("aten::mm", 60.0)
    return program.trace()


def gaps_between_launches_are_short__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::add", 3.0, host_us=60.0)
    return program.trace()


def once_in_a_long_step__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(50):
                program.operator("aten::mm", 200.0)
            program.drain()
            program.think(600)
            program.operator("aten::mm", 200.0)
    return program.trace()


def a_checkpoint_in_one_step_of_six__trace():
    program = Program()
    for number in range(6):
        with program.step():
            for _ in range(20):
                program.operator("aten::mm", 60.0)
            program.drain()
            program.think(5000 if number == 3 else 5, "trainer.py(40): save")
            program.operator("aten::mm", 60.0)
    return program.trace()
