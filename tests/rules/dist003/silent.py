"""Near misses: DIST003 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def reduced_beside_the_backward_pass__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
            program.operator("c10d::allreduce_", 500.0, runs=REDUCE, stream=20)
            for _ in range(10):
                program.operator("aten::mm", 80.0)
    return program.trace()


def a_small_rest__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::mm", 100.0)
            program.operator("c10d::allreduce_", 50.0, runs=REDUCE)
    return program.trace()


def no_collective_at_all__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 100.0)
    return program.trace()


def a_trace_that_marks_no_steps__trace():
    program = Program()
    program.operator("aten::mm", 100.0)
    program.operator("c10d::allreduce_", 500.0, runs=REDUCE)
    return program.trace()


def a_broadcast_before_the_first_step__trace():
    program = Program()
    program.operator("c10d::broadcast_", 5000.0, runs="ncclDevKernel_Broadcast_RING_LL")
    program.drain()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 1000.0)
    return program.trace()
