from tests.rules.mem001.silent import _needing


def tensors_need_most_of_it__trace():
    return _needing(0.94)


def hardly_anything_is_left__trace():
    return _needing(0.985)


def amd_under_its_own_name__trace():
    return _needing(0.94, device_type=6)
