"""SYNC008 must report each of these."""

from tests.timeline.kineto import call, loop, memset, product, text


def _setting(start, number, memory="Pinned", api="cudaMemset", us=300):
    """A memset that is called while the product before it still runs; ``us`` is what the call takes."""
    return [*product(start + 10, 100 * number), call(api, start + 50, us, number), memset(memory, start + 330, 5, number)]


def pinned_memory__trace():
    return text(loop(4, 1000.0, lambda number, start: _setting(start, number)))


def managed_memory_of_a_driver_call__trace():
    return text(loop(4, 1000.0, lambda number, start: _setting(start, number, "Managed", "cuMemsetD8_v2")))


def device_memory_and_yet_it_waited__trace():
    return text(loop(4, 1000.0, lambda number, start: _setting(start, number, "Device", "hipMemset")))
