from tests.timeline.kineto import call, loop, memcpy, op, product, text


def _sending(number, start, copies_us, computes_at, computes_us):
    """A step of 10 ms that sends its input for ``copies_us`` and computes beside it or after it."""
    return [
        op("aten::copy_", start + 10, 30),
        call("cudaMemcpyAsync", start + 15, 20, 100 * number),
        memcpy("HtoD (Pinned -> Device)", start + 40, copies_us, 100 * number, 1 << 26, stream=9),
        *product(start + computes_at, 100 * number + 1, computes_us),
    ]


def third_of_the_step_only_copies__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 3000, 3100, 5000)))


def half_of_the_copy_is_hidden__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 4000, 2000, 6000)))
