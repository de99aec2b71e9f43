from tests.rules.traces import operator, times, traced


def reduced_after_the_backward_pass__trace():
    reduced = operator("c10d::allreduce_", 300.0, runs="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    return traced(times(10, operator("aten::mm", 80.0)), reduced)
