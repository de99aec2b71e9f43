"""Near misses: SYNC008 must stay silent on all of these."""

from tests.timeline.kineto import call, loop, memset, product, text


def _setting(start, number, memory="Pinned", api="cudaMemset", us=300):
    """A memset that is called while the product before it still runs; ``us`` is what the call takes."""
    return [*product(start + 10, 100 * number), call(api, start + 50, us, number), memset(memory, start + 330, 5, number)]


def asynchronous__trace():
    return text(loop(4, 1000.0, lambda number, start: _setting(start, number, api="cudaMemsetAsync")))


def device_memory_returned_at_once__trace():
    return text(loop(4, 1000.0, lambda number, start: _setting(start, number, "Device", us=6)))


def once_in_ten_steps__trace():
    return text(loop(10, 1000.0, lambda number, start: _setting(start, number) if number == 4 else product(start, number)))


def before_the_first_step__trace():
    return text([*_setting(100.0, 90), *loop(4, 1000.0, lambda number, start: product(start, number))])


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in _setting(1000.0 * number, number)])
