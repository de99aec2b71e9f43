from tests.rules.traces import operator, times, traced
from tests.timeline.programs import Program

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
PRODUCT = operator("aten::mm", 100.0)


def reduced_beside_the_backward_pass__trace():
    reduced = operator("c10d::allreduce_", 500.0, runs=REDUCE, stream=20)
    return traced(PRODUCT, reduced, times(10, operator("aten::mm", 80.0)))


def a_small_rest__trace():
    return traced(times(10, PRODUCT), operator("c10d::allreduce_", 50.0, runs=REDUCE))


def no_collective_at_all__trace():
    return traced(PRODUCT)


def a_trace_that_marks_no_steps__trace():
    program = Program()
    times(1, PRODUCT, operator("c10d::allreduce_", 500.0, runs=REDUCE))(program)
    return program.trace()


def a_broadcast_before_the_first_step__trace():
    program = Program()
    program.operator("c10d::broadcast_", 5000.0, runs="ncclDevKernel_Broadcast_RING_LL")
    program.drain()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 1000.0)
    return program.trace()
