from tests.timeline.kineto import call, loop, memcpy, op, product, text


def _fetching(number, start, copies_us, copies_at, computes_us, memory="Pinned", size=1 << 26):
    """A step of 10 ms that computes, and copies its results to the host for ``copies_us``."""
    return [
        *product(start + 10, 100 * number + 1, computes_us),
        op("aten::copy_", start + copies_at - 30, 30),
        call("cudaMemcpyAsync", start + copies_at - 25, 20, 100 * number),
        memcpy(f"DtoH (Device -> {memory})", start + copies_at, copies_us, 100 * number, size, stream=9),
    ]


def third_of_the_step_only_copies__trace():
    return text(loop(4, 10_000.0, lambda number, start: _fetching(number, start, 3000, 5100, 5000)))


def half_of_the_copy_is_hidden__trace():
    return text(loop(4, 10_000.0, lambda number, start: _fetching(number, start, 4000, 4000, 6000)))


def every_third_step_stores_its_results__trace():
    body = lambda number, start: _fetching(number, start, 6000 if number % 3 == 0 else 10, 3100, 3000)  # noqa: E731
    return text(loop(9, 10_000.0, body))
