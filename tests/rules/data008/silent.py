from tests.timeline.kineto import call, loop, memcpy, op, product, text


def _sending(number, start, copies_us, computes_at, computes_us):
    """A step of 10 ms that sends its input for ``copies_us`` and computes beside it or after it."""
    return [
        op("aten::copy_", start + 10, 30),
        call("cudaMemcpyAsync", start + 15, 20, 100 * number),
        memcpy("HtoD (Pinned -> Device)", start + 40, copies_us, 100 * number, 1 << 26, stream=9),
        *product(start + computes_at, 100 * number + 1, computes_us),
    ]


def copies_beside_the_kernels__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 4000, 20, 9000)))


def small_share__trace():
    return text(loop(4, 10_000.0, lambda number, start: _sending(number, start, 500, 600, 8000)))


def first_step_sends_the_model__trace():
    return text(loop(6, 10_000.0, lambda number, start: _sending(number, start, 9000 if number == 1 else 100, 9100, 400)))


def steps_that_last_as_long_as_an_operator__trace():
    return text(loop(4, 300.0, lambda number, start: _sending(number, start, 50, 120, 100)))


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in _sending(number, 10_000.0 * number, 3000, 3100, 5000)])
