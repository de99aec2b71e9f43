"""What holds for every shape, GPU and set of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.extensions.forecast.calls import Call, Tensor
from auditor.extensions.forecast.classes import ClassNumbers, class_us
from auditor.extensions.forecast.coefficients import coefficients
from auditor.extensions.forecast.counts import count
from auditor.extensions.forecast.data_sheets import SHEETS, sheet_of
from auditor.extensions.forecast.forecasting import kernel_us
from auditor.extensions.forecast.matmul import MatmulNumbers, matmul_us
from auditor.extensions.forecast.predicting import (
    flops_of,
    predicted_us,
    products_of,
    roofline_us,
    work_of,
)

GPUS = st.sampled_from([sheet.key for sheet in SHEETS])
SIZES = st.integers(1, 600).map(lambda size: size * 8)
DTYPES = st.sampled_from(["float16", "bfloat16", "float32"])
SMALL = settings(max_examples=60, deadline=None)
STREAMING = st.sampled_from(
    [
        "aten::add",
        "aten::_softmax",
        "aten::native_layer_norm",
        "aten::native_layer_norm_backward",
        "aten::cudnn_batch_norm",
        "aten::sum",
        "aten::clone",
        "aten::avg_pool2d",
        "aten::embedding",
        "aten::sort",
        "aten::cat",
    ]
)


def products(rows: int, columns: int, depth: int, dtype: str) -> Call:
    return Call("aten::mm", (Tensor((rows, depth), dtype), Tensor((depth, columns), dtype)))


def streaming(name: str, rows: int, columns: int) -> Call:
    tensor = Tensor((rows, columns))
    if name == "aten::cat":
        return Call(name, ((tensor, tensor),))
    if name == "aten::embedding":
        return Call(name, (Tensor((50_000, columns)), Tensor((rows,), "int64")))
    return Call(name, (tensor, tensor) if name == "aten::add" else (tensor,))


def sheets_time(call: Call, gpu: str) -> float:
    counts, sheet = count(call), sheet_of(gpu)
    assert counts is not None
    moved = counts.bytes / sheet.bandwidth if counts.bytes > sheet.l2_bytes else 0.0
    return max(flops_of(counts, sheet) / sheet.peak(counts.arithmetic), moved) * 1e6


@SMALL
@given(GPUS, SIZES, SIZES, SIZES, DTYPES)
def test_no_product_is_faster_than_the_data_sheet(gpu, rows, columns, depth, dtype) -> None:
    call = products(rows, columns, depth, dtype)
    assert kernel_us([call], gpu)[0] >= sheets_time(call, gpu)


@SMALL
@given(GPUS, STREAMING, SIZES, SIZES)
def test_no_operator_is_faster_than_the_data_sheet(gpu, name, rows, columns) -> None:
    call = streaming(name, rows, columns)
    assert kernel_us([call], gpu)[0] >= sheets_time(call, gpu)


@SMALL
@given(GPUS, st.sampled_from([32, 64, 100]), st.sampled_from([1, 3, 7]), st.integers(8, 64))
def test_no_convolution_is_faster_than_the_data_sheet(gpu, channels, window, size) -> None:
    image, weight = Tensor((8, channels, size, size)), Tensor((channels, channels, window, window))
    values = (None, None, None, [1], [window // 2], [1], False, [0], 1)
    forward = Call("aten::convolution", (image, weight), values)
    backward = Call("aten::convolution_backward", (image, image, weight))
    for call in (forward, backward):
        assert kernel_us([call], gpu)[0] >= sheets_time(call, gpu)


@SMALL
@given(GPUS, st.sampled_from([64, 128]), st.integers(1, 64), st.integers(1, 40))
def test_no_attention_is_faster_than_the_data_sheet(gpu, width, heads, length) -> None:
    one = Tensor((4, heads, length * 64, width), "bfloat16")
    forward = Call("aten::_scaled_dot_product_flash_attention", (one, one, one))
    backward = Call("aten::_scaled_dot_product_flash_attention_backward", (one,) * 6)
    for call in (forward, backward):
        assert kernel_us([call], gpu)[0] >= sheets_time(call, gpu)


@SMALL
@given(GPUS, SIZES, SIZES, SIZES, DTYPES, st.integers(1, 3))
def test_a_larger_product_takes_no_less(gpu, rows, columns, depth, dtype, place) -> None:
    sizes = [rows, columns, depth]
    larger = list(sizes)
    larger[place - 1] *= 2
    small, large = kernel_us([products(*each, dtype) for each in (sizes, larger)], gpu)
    assert large >= small


@SMALL
@given(GPUS, STREAMING, SIZES, SIZES)
def test_more_rows_take_no_less(gpu, name, rows, columns) -> None:
    small, large = kernel_us([streaming(name, each, columns) for each in (rows, rows + 8)], gpu)
    assert large >= small


def test_numbers_that_are_too_good_are_held_to_the_data_sheet() -> None:
    """Also where a fit is wrong, the data sheet bounds it."""
    found = coefficients()
    fast = MatmulNumbers(1e-6, 1000.0, 1000.0, 1.0, 1.0, 1e-4)
    fits = {
        kind: {gpu: replace(fit, numbers=fast) for gpu, fit in each.items()}
        for kind, each in found.matmul.items()
    }
    numbers = replace(found, matmul=fits)
    call = products(8192, 8192, 8192, "bfloat16")
    sheet = sheet_of("H100")
    counts = count(call)
    assert counts is not None
    told = predicted_us([counts], sheet, numbers)
    assert told[0] == roofline_us([counts], sheet)[0] == pytest.approx(2 * 8192**3 / 989.4e12 * 1e6)


def test_the_last_wave_of_tiles_may_be_nearly_empty() -> None:
    """One column of tiles more than there are processors, and small tiles that cost a lot."""
    numbers = MatmulNumbers(1.0, 1.0, 1.0, 1.0, 1.0, 4.0)
    sheet = sheet_of("H100")  # 132 processors
    times = []
    for tiles in (131, 132, 133):
        counts = count(products(128, 256 * tiles, 8192, "bfloat16"))
        assert counts is not None
        times.append(float(matmul_us(numbers, products_of([counts], sheet))[0]))
    assert times[1] < 1.01 * times[0]
    assert times[2] > 1.05 * times[1]


def test_a_class_by_hand() -> None:
    sheet = sheet_of("A100")
    counts = count(Call("aten::add", (Tensor((1 << 26,)), Tensor((1 << 26,)))))
    assert counts is not None
    numbers = ClassNumbers(3.0, 1.0, 0.5, 1.0, 1.0)
    moved = 3 * 4 * (1 << 26)
    told = class_us(numbers, work_of([counts], sheet))
    assert told[0] == pytest.approx(3.0 + moved / (sheet.bandwidth * 0.5) * 1e6)


@pytest.mark.parametrize(("share", "faster"), [(0.29, True), (0.31, False)])
def test_what_fits_into_the_l2_comes_faster(share, faster) -> None:
    sheet = sheet_of("A100")
    elements = round(share * sheet.l2_bytes / 12)
    counts = count(Call("aten::add", (Tensor((elements,)), Tensor((elements,)))))
    assert counts is not None
    work = work_of([counts], sheet)
    plain, gained = (
        class_us(ClassNumbers(1.0, 1.0, 1.0, 1.0, gain), work)[0] for gain in (1.0, 2.0)
    )
    assert (gained < plain) == faster


def test_kernels_have_a_floor_each() -> None:
    sheet, numbers = sheet_of("A100"), ClassNumbers(5.0, 1.0, 1.0, 1.0, 1.0)
    lists = tuple(tuple(Tensor((1,)) for _ in range(130)) for _ in range(2))
    counts = count(Call("aten::_foreach_add_", lists))
    assert counts is not None
    assert counts.kernels == 3
    assert class_us(numbers, work_of([counts], sheet))[0] == pytest.approx(15, rel=0.01)


def test_winograd_counts_only_without_tensor_cores() -> None:
    image, weight = Tensor((8, 64, 32, 32)), Tensor((64, 64, 3, 3))
    values = (None, None, None, [1], [1], [1], False, [0], 1)
    counts = count(Call("aten::convolution", (image, weight), values))
    assert counts is not None
    assert flops_of(counts, sheet_of("A100")) == counts.flops
    assert flops_of(counts, sheet_of("V100")) == pytest.approx(counts.flops / 2.25)


def test_no_calls_no_times() -> None:
    assert np.array_equal(kernel_us([], "H100"), np.zeros(0))
