"""Near misses: DIST002 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def _steps(collective="gloo:all_reduce", product=100.0, reduced=0.0):
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", product)
            if collective:
                program.operator(collective, reduced, runs="ncclDevKernel_AllReduce_Sum_f32_RING_LL", host_us=100.0)
    return program


def it_is_nccl__trace():
    return _steps("nccl:all_reduce", reduced=50.0).trace()


def gloo_for_the_host_and_nccl_for_the_device__trace():
    return _steps("nccl:all_reduce", reduced=50.0).trace(backend='"cpu:gloo,cuda:nccl"')


def a_second_group_does_the_gradients__trace():
    return _steps("nccl:all_reduce", reduced=50.0).trace(backend='"gloo"')


def a_job_on_processors__trace():
    return _steps(product=0.0).trace(backend='"gloo"')


def a_single_process__trace():
    return _steps().trace(backend='"gloo"', world_size="1")


def a_group_that_nobody_uses__trace():
    return _steps(collective="").trace(backend='"gloo"')
