"""Near misses: KERN006 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def layers_one_after_the_other__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::linear", 20.0)
                program.operator("aten::relu", 3.0)
    return program.trace()


def the_loaders_own_loop__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            with program.inside("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", annotation=True):
                for _ in range(32):
                    program.operator("aten::select", 1.0)
            program.operator("aten::mm", 100.0)
    return program.trace()


def views_that_launch_nothing__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::select")
            program.operator("aten::mm", 100.0)
    return program.trace()


def eight_turns__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(8):
                program.operator("aten::select")
                program.operator("aten::mul", 2.0)
    return program.trace()


def a_small_part_of_the_step__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 9000.0, host_us=9000.0)
            for _ in range(12):
                program.operator("aten::select")
                program.operator("aten::mul", 2.0)
    return program.trace()
