"""DIST003 must be a warning on these traces."""

from tests.timeline.programs import Program


def reduced_after_the_backward_pass__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(10):
                program.operator("aten::mm", 80.0)
            program.operator("c10d::allreduce_", 300.0, runs="ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    return program.trace()
