"""SYNC012 must report each of these."""

from tests.timeline.kineto import call, loop, product, text


def _allocating(steps, on, api="cudaMalloc", times=1):
    """A trace whose steps ``on`` call the driver for memory."""

    def body(number, start):
        calls = [call(api, start + 40 + 60 * each, 50) for each in range(times if number in on else 0)]
        return [*calls, *product(start + 400, number)]

    return text(loop(steps, 1000.0, body))


def cache_that_never_fits__trace():
    return _allocating(5, on=(1, 2, 3, 4, 5))


def cache_that_is_emptied_on_each_step__trace():
    return _allocating(5, on=(2, 3, 4, 5), api="cudaFree", times=3)


def pinned_memory_made_on_each_step__trace():
    return _allocating(5, on=(1, 2, 3, 4, 5), api="cudaHostAlloc")


def segments_that_grow_and_shrink__trace():
    return _allocating(6, on=(2, 4, 6), api="cuMemMap")
