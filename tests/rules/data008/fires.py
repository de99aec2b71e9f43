from tests.rules.data008.silent import _sending
from tests.timeline.kineto import loop, text


def third_of_the_step_only_copies__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 3000, 3100, 5000)))


def half_of_the_copy_is_hidden__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 4000, 2000, 6000)))
