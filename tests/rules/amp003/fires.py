from tests.timeline.programs import Program

HALF = ["c10::BFloat16", "c10::BFloat16"]


def a_vocabulary_of_50257__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            sizes = [[2048, 1024], [1024, 50257]]
            program.operator("aten::mm", 300.0, runs="ampere_bf16_s16816gemm", **{"Input Dims": sizes, "Input type": HALF})
            program.operator("aten::relu", 50.0)
    return program.trace()
