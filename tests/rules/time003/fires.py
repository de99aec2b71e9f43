from tests.timeline.kineto import frame, loop, op, product, text


def _pausing(quiet_us, also=()):
    """Steps of 10 ms in which nothing is seen for ``quiet_us`` after a product of 500 us."""

    def body(number, start):
        working = [op("aten::add", start + each, 90) for each in range(1000 + quiet_us, 9900, 100)]
        frames = [frame("train.py(12): read_sensor", start + 600, quiet_us)]
        return [*product(start + 10, number, 900), op("aten::relu", start + 100, 880), *working, *frames, *also]

    return text(loop(4, 10_000.0, body))


def sensor_is_read_between_operators__trace():
    return _pausing(4000)


def half_of_the_step__trace():
    return _pausing(5500)
