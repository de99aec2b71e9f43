from tests.timeline.kineto import call, loop, product, text


def _allocating(steps, on, api="cudaMalloc", times=1):
    """A trace whose steps ``on`` call the driver for memory."""

    def body(number, start):
        calls = [call(api, start + 40 + 60 * each, 50) for each in range(times if number in on else 0)]
        return [*calls, *product(start + 400, number)]

    return text(loop(steps, 1000.0, body))


def first_step_warms_the_cache__trace():
    return _allocating(5, on=(1,), times=12)


def largest_shape_comes_after_the_first_step__trace():
    return _allocating(3, on=(1, 2))


def empty_cache_called_once__trace():
    return _allocating(10, on=(5,), api="cudaFree", times=8)


def before_the_first_step__trace():
    warm_up = [call("cudaMalloc", 10.0 * number, 9) for number in range(40)]
    return text([*warm_up, *loop(4, 1000.0, lambda number, start: product(start, number))])


def stream_ordered_allocator_works_so__trace():
    return _allocating(5, on=(1, 2, 3, 4, 5), api="cudaMallocAsync", times=20)


def second_largest_shape_came_late__trace():
    return _allocating(10, on=(1, 3, 7))


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in (call("cudaMalloc", 1000.0 * number, 500), *product(1000.0 * number + 600, number))])
