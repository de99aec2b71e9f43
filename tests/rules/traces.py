"""Traces of programs whose steps are all alike."""

from collections.abc import Callable

from tests.timeline.kineto import call, memcpy, note, op, product
from tests.timeline.programs import Program

Part = Callable[[Program], None]


def steps(*parts: Part, device: str = "A100", count: int = 3) -> Program:
    program = Program(device)
    for _ in range(count):
        with program.step():
            for part in parts:
                part(program)
    return program


def traced(*parts: Part, device: str = "A100", count: int = 3, **more: str) -> str:
    return steps(*parts, device=device, count=count).trace(**more)


def times(count: int, *parts: Part) -> Part:
    def run(program: Program) -> None:
        for _ in range(count):
            for part in parts:
                part(program)

    return run


def operator(name: str, kernel_us: float = 0.0, **more: object) -> Part:
    return lambda program: program.operator(name, kernel_us, **more)


def inside(name: str, *parts: Part, **more: bool) -> Part:
    def run(program: Program) -> None:
        with program.inside(name, **more):
            times(1, *parts)(program)

    return run


def optimizer(name: str, *parts: Part) -> Part:
    def run(program: Program) -> None:
        with program.optimizer(name):
            times(1, *parts)(program)

    return run


def think(us: float, function: str = "") -> Part:
    return lambda program: program.think(us, function)


def drain(program: Program) -> None:
    program.drain()


def loader(us: float) -> Part:
    """The host waits for a batch."""

    def run(program: Program) -> None:
        begin = program.host
        program.think(us)
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        program.events.append(note(name, begin, us))

    return run


def copying(
    start: float,
    number: int,
    kind: str = "HtoD (Pageable -> Device)",
    *,
    waits: bool = True,
    size: int = 1 << 20,
) -> list[dict[str, object]]:
    """A copy that begins 400 us into the step, and the synchronisation that makes it blocking."""
    first = 100 * number
    copied = [
        *product(start + 10, first + 1),
        op("aten::to", start + 400, 200),
        op("aten::copy_", start + 405, 190),
        call("cudaMemcpyAsync", start + 410, 100, first + 2),
        memcpy(kind, start + 420, 80, first + 2, size),
    ]
    return [*copied, call("cudaStreamSynchronize", start + 512, 20, first + 3)] if waits else copied
