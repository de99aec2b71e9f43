"""Times of calls and of steps: never below the data sheet, always an interval, and silence only where
shapes do not say what runs.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.errors import AuditProblem
from auditor.extensions.forecast.counts import MEMORY, PRODUCT, Call, Counts, Tensor, count
from auditor.extensions.forecast.data_sheets import SHEETS, sheet_of
from auditor.extensions.forecast.model import (
    LOWER,
    RATES,
    UPPER,
    Rates,
    call_us,
    counted,
    flops_of,
    forecast,
    least_us,
    shares,
)

GPUS = st.sampled_from([sheet.key for sheet in SHEETS])
SIZES = st.integers(1, 600).map(lambda size: size * 8)
DTYPES = st.sampled_from(["float16", "bfloat16", "float32"])
SMALL = settings(max_examples=60, deadline=None)
STREAMING = st.sampled_from(
    ["aten::add", "aten::_softmax", "aten::native_layer_norm", "aten::sum", "aten::sort"]
)
SQUARE = Tensor((4096, 4096), "bfloat16")
CALL = Call("aten::mm", (SQUARE, SQUARE), outputs=(SQUARE,), times=40)
LONG = Call("aten::add", (Tensor((1 << 26,)), Tensor((1 << 26,))), outputs=(Tensor((1 << 26,)),))


def product(rows: int, columns: int, depth: int, dtype: str) -> Counts:
    given_ = (Tensor((rows, depth), dtype), Tensor((depth, columns), dtype))
    return count(Call("aten::mm", given_, outputs=(Tensor((rows, columns), dtype),)))


def streaming(name: str, rows: int, columns: int) -> Counts:
    tensor = Tensor((rows, columns))
    return count(Call(name, (tensor, tensor) if name == "aten::add" else (tensor,)))


# -- one call --------------------------------------------------------------------------------------


@SMALL
@given(GPUS, SIZES, SIZES, SIZES, DTYPES)
def test_no_product_is_faster_than_the_data_sheet(gpu, rows, columns, depth, dtype) -> None:
    counts, sheet = product(rows, columns, depth, dtype), sheet_of(gpu)
    assert call_us(counts, sheet) >= least_us(counts, sheet) > 0


@SMALL
@given(GPUS, STREAMING, SIZES, SIZES)
def test_no_operator_is_faster_than_the_data_sheet(gpu, name, rows, columns) -> None:
    counts, sheet = streaming(name, rows, columns), sheet_of(gpu)
    assert call_us(counts, sheet) >= least_us(counts, sheet)
    assert call_us(streaming(name, rows + 8, columns), sheet) >= call_us(counts, sheet)


@SMALL
@given(GPUS, SIZES, SIZES, SIZES, DTYPES, st.integers(0, 2))
def test_a_larger_product_takes_no_less(gpu, rows, columns, depth, dtype, place) -> None:
    sizes = [rows, columns, depth]
    small = call_us(product(*sizes, dtype), sheet_of(gpu))
    sizes[place] *= 2
    assert call_us(product(*sizes, dtype), sheet_of(gpu)) >= small


@pytest.mark.parametrize("rates", RATES.values(), ids=RATES)
def test_no_rate_is_beyond_the_data_sheet(rates: Rates) -> None:
    assert 0 < rates.compute <= 1 and 0 < rates.memory <= 1 and rates.floor_us > 0


@pytest.mark.parametrize(
    ("flops", "size", "us"),
    [(1e9, 0.0, 3 + 1e9 / 19.5e12 * 2e6), (0.0, 1e9, 3 + 1e9 / 2039e9 * 4e6), (0.0, 0.0, 3.0)],
)
def test_a_floor_and_the_longer_of_work_and_bytes(flops, size, us) -> None:
    table = {MEMORY: Rates(3.0, 0.5, 0.25)}
    assert call_us(Counts(MEMORY, flops, size), sheet_of("A100"), table) == pytest.approx(
        us, rel=0.01
    )


def test_kernels_have_a_floor_each() -> None:
    sheet = sheet_of("A100")
    one, three = (call_us(Counts(MEMORY, kernels=number), sheet) for number in (1, 3))
    assert three == pytest.approx(3 * one)
    assert call_us(Counts(MEMORY, bytes=1e9, kernels=0), sheet) == 0
    assert least_us(Counts(MEMORY, bytes=1e9, kernels=0), sheet) == 0


def test_amds_products_have_rates_of_their_own() -> None:
    counts = product(8192, 8192, 8192, "bfloat16")
    times = {}
    for gpu in ("H100", "MI300X"):
        sheet = sheet_of(gpu)
        times[gpu] = call_us(counts, sheet) / least_us(counts, sheet)
    assert times["MI300X"] > 1.5 * times["H100"]


@pytest.mark.parametrize(("share", "free"), [(0.99, True), (1.01, False)])
def test_bytes_that_fit_into_the_l2_may_cost_nothing(share, free) -> None:
    sheet = sheet_of("A100")
    counts = Counts(MEMORY, bytes=sheet.l2_bytes * share)
    assert (least_us(counts, sheet) == 0) == free


def test_a_convolution_may_need_fewer_flops_where_no_tensor_core_computes_it() -> None:
    image, weight = Tensor((8, 64, 32, 32)), Tensor((64, 64, 3, 3))
    counts = count(Call("aten::convolution", (image, weight), outputs=(image,)))
    for gpu, fewer in (("A100", 1), ("V100", 4)):
        sheet = sheet_of(gpu)
        sheets = counts.flops / fewer / sheet.tf32 * 1e6
        assert least_us(counts, sheet) == pytest.approx(sheets)


def test_tf32_is_faster_where_there_is_any() -> None:
    single = Tensor((4096, 4096))
    call = Call("aten::mm", (single, single), outputs=(single,))
    times = {
        gpu: [call_us(count(call, tf32_matmul=each), sheet_of(gpu)) for each in (False, True)]
        for gpu in ("A100", "V100")
    }
    assert times["A100"][0] > 3 * times["A100"][1]
    assert times["V100"][0] == times["V100"][1]


# -- a step ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.key)
def test_every_gpu_has_an_interval(sheet) -> None:
    found = forecast(counted([CALL, LONG]), sheet.key)
    assert (found.gpu, found.reasons) == (sheet.key, ())
    assert found.low_us is not None and found.high_us is not None
    us = sum(call_us(each.counts, sheet) * each.times for each in counted([CALL, LONG]))
    assert found.low_us < us < found.high_us
    assert found.high_us == pytest.approx(us * UPPER)


def test_an_interval_never_reaches_below_the_data_sheet() -> None:
    """The bytes' share of the bandwidth is nearer to 1 than the interval's lower end."""
    assert RATES[MEMORY].memory > LOWER
    found, sheet = forecast(counted([LONG]), "H100"), sheet_of("H100")
    assert found.low_us == pytest.approx(3 * 4 * (1 << 26) / sheet.bandwidth * 1e6)


def test_calls_that_are_alike_count_as_often_as_they_ran() -> None:
    once = Call(CALL.name, CALL.inputs, outputs=CALL.outputs)
    apart, together = (forecast(counted(calls), "H100") for calls in ([once] * 40, [CALL]))
    assert together.low_us == pytest.approx(apart.low_us)
    half = forecast(counted([CALL], steps=2), "H100")
    assert half.low_us is not None and together.low_us == pytest.approx(2 * half.low_us)
    assert flops_of(counted([CALL], steps=2)) == 20 * 2 * 4096**3


def test_mfu_is_of_the_lower_end_and_never_more_than_all() -> None:
    found = forecast(counted([CALL]), "H100")
    assert found.low_us is not None and found.mfu_at_most is not None
    peak = sheet_of("H100").half
    assert found.mfu_at_most == pytest.approx(40 * 2 * 4096**3 / (found.low_us * 1e-6 * peak))
    assert found.mfu_at_most <= 1
    assert forecast(counted([LONG]), "H100").mfu_at_most == 0


def test_classes_by_their_share() -> None:
    found = shares(counted([CALL, LONG, Call("aten::view", (SQUARE,))]), "H100")
    assert [kind for kind, _ in found] == [PRODUCT, MEMORY]
    assert sum(share for _, share in found) == pytest.approx(1)
    assert found[0][1] > found[1][1]
    assert shares([], "H100") == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("triton_poi_fused_add_0", "the work of {} does not follow from shapes"),
        ("flash_attn::fwd", "the work of {} does not follow from shapes"),
        ("aten::linalg_svd", "the work of {} does not follow from shapes"),
        ("c10d::allreduce_", "several GPUs: what the others do is not predicted"),
        ("nccl:all_reduce", "several GPUs: what the others do is not predicted"),
    ],
)
def test_what_shapes_do_not_tell_says_nothing(name, reason) -> None:
    found = forecast(counted([CALL, Call(name, (SQUARE,))]), "H100")
    assert (found.low_us, found.high_us, found.mfu_at_most) == (None, None, None)
    assert found.reasons == (reason.format(name),)


@pytest.mark.parametrize(("number", "more"), [(3, False), (4, True)])
def test_a_reason_names_a_few(number, more) -> None:
    (reason,) = forecast(counted([Call(f"mine::op{n}") for n in range(number)]), "H100").reasons
    assert ("op2" in reason, "op3" in reason, ", ..." in reason) == (True, False, more)


def test_views_and_the_hosts_own_work_cost_nothing() -> None:
    host = Tensor((1 << 20,), on_host=True)
    free = [Call("aten::view", (SQUARE,)), Call("aten::add", (host, host))]
    assert forecast(counted([CALL, *free]), "H100") == forecast(counted([CALL]), "H100")
    assert forecast(counted(free), "H100").reasons == ("no operator starts a kernel",)
    assert forecast((), "H100").low_us is None


def test_a_gpu_that_is_not_known() -> None:
    with pytest.raises(AuditProblem, match="no data sheet"):
        forecast(counted([CALL]), "GTX 970")
