from tests.rules.sync012.silent import _allocating
from tests.timeline.kineto import call, kernel, loop, text


def cache_that_never_fits__trace():
    return _allocating(5, on=(1, 2, 3, 4, 5))


def cache_that_is_emptied_on_each_step__trace():
    return _allocating(5, on=(2, 3, 4, 5), api="cudaFree", times=3)


def pinned_memory_made_on_each_step__trace():
    return _allocating(5, on=(1, 2, 3, 4, 5), api="cudaHostAlloc")


def segments_that_grow_and_shrink__trace():
    return _allocating(6, on=(2, 4, 6), api="cuMemMap")


def _uncached(start, first, kernels):
    """Kernels that each allocate their result, and free the one before."""
    for number in range(kernels):
        at, correlation = start + 20 + 30 * number, first + 3 * number
        yield call("cudaMalloc", at, 9, correlation)
        yield call("cudaLaunchKernel", at + 10, 4, correlation + 1)
        yield kernel("vectorized_elementwise_kernel", at + 15, 5, correlation + 1)
        yield call("cudaFree", at + 21, 8, correlation + 2)


def cache_that_is_switched_off__trace():
    return text(loop(4, 1000.0, lambda number, start: list(_uncached(start, 1000 * number, 25))))
