from tests.timeline.kineto import call, loop, memcpy, op, product, text


def _fetching(number, start, copies_us, copies_at, computes_us, kind="DtoH (Device -> Pinned)"):
    """A step of 10 ms that computes, and copies its results to the host for ``copies_us``."""
    return [
        *product(start + 10, 100 * number + 1, computes_us),
        op("aten::copy_", start + copies_at - 30, 30),
        call("cudaMemcpyAsync", start + copies_at - 25, 20, 100 * number),
        memcpy(kind, start + copies_at, copies_us, 100 * number, 1 << 26, stream=9),
    ]


def copies_beside_the_kernels__trace():
    return text(loop(4, 10_000.0, lambda number, start: _fetching(number, start, 4000, 40, 9000)))


def small_share__trace():
    return text(loop(4, 10_000.0, lambda number, start: _fetching(number, start, 500, 8100, 8000)))


def first_step_stores_what_it_began_with__trace():
    return text(loop(6, 10_000.0, lambda number, start: _fetching(number, start, 9000 if number == 1 else 100, 510, 500)))


def one_step_writes_a_checkpoint__trace():
    """Its copies are a note: they recur on no other step."""
    return text(loop(6, 10_000.0, lambda number, start: _fetching(number, start, 8000 if number == 4 else 100, 510, 500)))


def copies_go_the_other_way__trace():
    return text(loop(4, 10_000.0, lambda number, start: _fetching(number, start, 3000, 5100, 5000, "HtoD (Pinned -> Device)")))


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in _fetching(number, 10_000.0 * number, 3000, 5100, 5000)])
