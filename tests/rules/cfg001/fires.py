"""CFG001 must be a warning on these traces."""

from tests.timeline.kineto import call
from tests.timeline.programs import Program


def each_step_has_another_size__trace():
    program = Program()
    for _ in range(4):
        with program.step(), program.inside("aten::cudnn_convolution"):
            for _ in range(6):
                program.launch("implicit_convolve_sgemm", 50.0)
                program.events.append(call("cudaEventSynchronize", program.host, 60))
                program.think(62)
    return program.trace()
