from tests.rules.traces import inside, operator, think, times, traced
from tests.timeline.kineto import memcpy

BF16 = "ampere_bf16_s16816gemm_bf16_128x64"


def _casts(cast_us, kernel):
    cast = inside("aten::_to_copy", operator("aten::copy_", cast_us))
    return traced(times(8, cast, operator("aten::addmm", 100.0, runs=kernel)))


def a_few_per_cent_are_what_autocast_costs__trace():
    return _casts(5.0, BF16)


def integers_become_floats_in_an_fp32_model__trace():
    return _casts(60.0, "ampere_sgemm_128x64_tn")


def a_batch_comes_from_the_host__trace():
    def copied(program):
        program.events.append(memcpy("HtoD (Pinned -> Device)", program.host, 400, 0, 1 << 20))

    moved = inside("aten::_to_copy", copied, think(400))
    return traced(moved, operator("aten::addmm", 100.0, runs=BF16))


def copies_that_convert_nothing__trace():
    return traced(times(8, operator("aten::copy_", 60.0), operator("aten::addmm", 60.0, runs=BF16)))
