from tests.timeline.kineto import loop, note, op, product, span, text


def pythons_own_pace__trace():
    def body(number, start):
        return [event for each in range(10) for event in product(start + 1000 * each, 100 * number + each, 50)]

    return text(loop(4, 9_900.0, body))


def short_pause__trace():
    return text(loop(4, 10_000.0, lambda number, start: [*product(start, number, 8500), op("aten::add", start + 8500, 50)]))


def waits_for_the_loader__trace():
    def body(number, start):
        return [note("enumerate(DataLoader)#_Iter.__next__", start, 6000), *product(start + 6010, number, 3900)]

    return text(loop(4, 10_000.0, body))


def optimizer_in_python__trace():
    def body(number, start):
        return [note("Optimizer.step#Mine.step", start + 4000, 6000), *product(start, number, 3900)]

    return text(loop(4, 10_000.0, body))


def device_works_the_whole_time__trace():
    return text(loop(4, 10_000.0, lambda number, start: product(start, number, 9900)))


def profiler_writes_its_buffers__trace():
    def body(number, start):
        return [span("overhead", "Activity Buffer Request", start + 2000, 7900), *product(start, number, 1900)]

    return text(loop(4, 10_000.0, body))


def trace_that_was_cut_down__trace():
    return text(loop(4, 100_000.0, lambda number, start: product(start, number, 10)))


def trace_of_a_cpu__trace():
    return text(loop(4, 10_000.0, lambda number, start: [op("aten::mm", start, 2000)]))
