"""AMP007 must be a warning on these traces."""

from tests.timeline.programs import Program


def each_weight_converted_again__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(8):
                with program.inside("aten::to"), program.inside("aten::_to_copy"):
                    program.operator("aten::copy_", 30.0)
                program.operator("aten::addmm", 60.0, runs="ampere_bf16_s16816gemm_bf16_128x64")
    return program.trace()
