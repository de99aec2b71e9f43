from tests.timeline.kineto import head_with_memory, loop, memory, product, text


CAPACITY = 80 * 2**30


def _needing(share, reserved=None, device_type=1, capacity=CAPACITY):
    """A trace in which tensors take a share of the device."""
    held = int((reserved or share) * CAPACITY)
    events = loop(3, 1000.0, lambda number, start: product(start, number))
    return text([*events, memory(1500.0, 512, int(share * CAPACITY), held, device_type)], head_with_memory(capacity))


def tensors_need_most_of_it__trace():
    return _needing(0.94)


def hardly_anything_is_left__trace():
    return _needing(0.985)


def amd_under_its_own_name__trace():
    return _needing(0.94, device_type=6)
