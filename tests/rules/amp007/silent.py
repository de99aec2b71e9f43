"""Near misses: AMP007 must stay silent, or a note, on all of these."""

from tests.timeline.kineto import memcpy
from tests.timeline.programs import Program


def _steps(cast_us, product, times=8):
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(times):
                with program.inside("aten::_to_copy"):
                    program.operator("aten::copy_", cast_us)
                program.operator("aten::addmm", 100.0, runs=product)
    return program


def a_few_per_cent_are_what_autocast_costs__trace():
    return _steps(5.0, "ampere_bf16_s16816gemm_bf16_128x64").trace()


def integers_become_floats_in_an_fp32_model__trace():
    return _steps(60.0, "ampere_sgemm_128x64_tn").trace()


def a_batch_comes_from_the_host__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            with program.inside("aten::_to_copy"):
                program.events.append(memcpy("HtoD (Pinned -> Device)", program.host, 400, 0, 1 << 20))
                program.think(400)
            program.operator("aten::addmm", 100.0, runs="ampere_bf16_s16816gemm_bf16_128x64")
    return program.trace()


def copies_that_convert_nothing__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(8):
                program.operator("aten::copy_", 60.0)
                program.operator("aten::addmm", 60.0, runs="ampere_bf16_s16816gemm_bf16_128x64")
    return program.trace()
