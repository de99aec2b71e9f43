from tests.rules.traces import operator, traced


def _traced(collective="gloo:all_reduce", product=100.0, reduced=0.0, **more):
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    parts = [operator(collective, reduced, runs=kernel, host_us=100.0)] if collective else []
    return traced(operator("aten::mm", product), *parts, **more)


def it_is_nccl__trace():
    return _traced("nccl:all_reduce", reduced=50.0)


def gloo_for_the_host_and_nccl_for_the_device__trace():
    return _traced("nccl:all_reduce", reduced=50.0, backend='"cpu:gloo,cuda:nccl"')


def a_second_group_does_the_gradients__trace():
    return _traced("nccl:all_reduce", reduced=50.0, backend='"gloo"')


def a_job_on_processors__trace():
    return _traced(product=0.0, backend='"gloo"')


def a_single_process__trace():
    return _traced(backend='"gloo"', world_size="1")


def a_group_that_nobody_uses__trace():
    return _traced(collective="", backend='"gloo"')
