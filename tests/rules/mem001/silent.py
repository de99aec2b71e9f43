from tests.timeline.kineto import head_with_memory, loop, memory, product, text

CAPACITY = 80 * 2**30


def _needing(share, reserved=None, device_type=1, capacity=CAPACITY):
    """A trace in which tensors take a share of the device."""
    held = int((reserved or share) * CAPACITY)
    events = loop(3, 1000.0, lambda number, start: product(start, number))
    return text([*events, memory(1500.0, 512, int(share * CAPACITY), held, device_type)], head_with_memory(capacity))


def well_below__trace():
    return _needing(0.6)


def cache_fills_what_tensors_do_not_need__trace():
    return _needing(0.5, reserved=0.99)


def memory_of_the_host__trace():
    host = memory(1400.0, 512, int(0.95 * CAPACITY), device_type=0)
    events = loop(3, 1000.0, lambda number, start: product(start, number))
    return text([*events, host, memory(1500.0, 512, 1024)], head_with_memory(CAPACITY))


def a_server_fills_the_device_on_purpose__trace():
    cache = memory(1500.0, 512, int(0.98 * CAPACITY), int(0.98 * CAPACITY))
    return text([*product(1000.0, 1), *product(2000.0, 2), cache], head_with_memory(CAPACITY))


def capacity_is_not_told__trace():
    return _needing(0.95, capacity=0)


def torch_that_wrote_no_totals__trace():
    return _needing(-1 / CAPACITY)
