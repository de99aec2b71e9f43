"""FLOPs and bytes of calls against values worked out by hand, and which class an operator is of."""

from __future__ import annotations

import pytest

from auditor.extensions.forecast.counts import (
    ATTENTION,
    COLLECTIVE,
    CONV,
    MEMORY,
    NOTHING,
    PRODUCT,
    UNKNOWN,
    Call,
    Tensor,
    count,
    kind_of,
)


def half(*shape: int) -> Tensor:
    return Tensor(shape, "bfloat16")


def counted(name, *inputs, values=(), outputs=(), **more):
    return count(Call(name, inputs, values, outputs), **more)


def test_bytes_of_tensors() -> None:
    assert Tensor((4, 8), "float16").size_bytes == 64
    assert Tensor((4, 8), "float16", (0, 1)).stored_bytes == 16
    assert Tensor((4, 8), "float16", (8, 1)).stored_bytes == 64
    assert Tensor((0, 8), strides=(0, 1)).stored_bytes == 0
    assert Tensor((), "float64").size_bytes == 8
    assert Tensor((4,), "float8_e4m3fn").item_bytes == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", PRODUCT),
        ("aten::mm.default", PRODUCT),
        ("aten::convolution_backward", CONV),
        ("aten::_scaled_dot_product_flash_attention", ATTENTION),
        ("aten::_flash_attention_backward", ATTENTION),
        ("aten::native_group_norm", MEMORY),
        ("aten::linalg_vector_norm", MEMORY),
        ("aten::_to_copy.default", MEMORY),
        ("aten::_foreach_norm", MEMORY),
        ("aten::sort", MEMORY),
        ("aten::slice", NOTHING),
        ("c10d::allreduce_", COLLECTIVE),
        ("nccl:all_reduce", COLLECTIVE),
        ("record_param_comms", COLLECTIVE),
        ("triton_poi_fused_add_0", UNKNOWN),
        ("Torch-Compiled Region: 0/0", UNKNOWN),
        ("fbgemm::permute_2D_sparse_data", UNKNOWN),
        ("aten::linalg_svd", UNKNOWN),
        ("aten::_fft_r2c", UNKNOWN),
    ],
)
def test_classes_by_name(name, kind) -> None:
    assert kind_of(name) == kind


# -- products, attention, convolutions -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inputs", "made", "depth"),
    [
        ("aten::mm", (half(128, 256), half(256, 512)), half(128, 512), 256),
        ("aten::addmm", (half(512), half(128, 256), half(256, 512)), half(128, 512), 256),
        ("aten::bmm", (half(8, 64, 32), half(8, 32, 16)), half(8, 64, 16), 32),
        ("aten::linear", (half(4, 10, 32), half(16, 32), half(16)), half(4, 10, 16), 32),
        ("aten::mv", (half(10, 32), half(32)), half(10), 32),
        ("aten::dot", (half(32), half(32)), half(), 32),
    ],
)
def test_products(name, inputs, made, depth) -> None:
    found = counted(name, *inputs, outputs=(made,))
    assert (found.kind, found.arithmetic) == (PRODUCT, "16-bit")
    assert found.flops == 2 * made.elements * depth
    assert found.bytes == sum(each.size_bytes for each in (*inputs, made))


def test_a_product_in_place_writes_what_it_is_added_to() -> None:
    found = counted("aten::addmm_", half(128, 512), half(128, 256), half(256, 512))
    assert found.flops == 2 * 128 * 512 * 256


def test_what_has_no_factors_or_no_result_is_not_known() -> None:
    square = half(64, 64)
    assert counted("aten::mm", square, square).kind == UNKNOWN
    assert counted("aten::mm", square, outputs=(square,)).kind == UNKNOWN
    assert counted("aten::convolution", half(1, 8, 9, 9), half(8, 8, 3, 3)).kind == UNKNOWN
    packed = half(300, 8, 64)
    assert counted("aten::_flash_attention_forward", packed, packed, packed).kind == UNKNOWN


def test_tf32_is_torchs_default_for_convolutions_only() -> None:
    single, image = Tensor((64, 64)), Tensor((1, 8, 9, 9))
    product = {"outputs": (single,)}
    assert counted("aten::mm", single, single, **product).arithmetic == "fp32"
    assert counted("aten::mm", single, single, tf32_matmul=True, **product).arithmetic == "tf32"
    given, made = (image, Tensor((8, 8, 3, 3))), {"outputs": (image,)}
    assert counted("aten::convolution", *given, **made).arithmetic == "tf32"
    assert counted("aten::convolution", *given, tf32_conv=False, **made).arithmetic == "fp32"


HEADS = half(2, 8, 128, 64)
"""Batch, heads, sequence, width."""


def test_attention_of_scaled_dot_product() -> None:
    name = "aten::_scaled_dot_product_flash_attention"
    found = counted(name, HEADS, HEADS, HEADS)
    assert found.kind == ATTENTION
    assert found.flops == 4 * 2 * 8 * 128 * 128 * 64
    assert found.bytes == 4 * HEADS.size_bytes
    causal = counted(name, HEADS, HEADS, HEADS, values=(None, None, None, 0.0, True))
    assert causal.flops == found.flops / 2


def test_the_kernels_own_attention_has_the_sequence_before_the_heads() -> None:
    turned = half(2, 128, 8, 64)
    found = counted("aten::_flash_attention_forward", turned, turned, turned)
    assert found.flops == 4 * 2 * 8 * 128 * 128 * 64


def test_backward_of_attention_is_five_products() -> None:
    name = "aten::_scaled_dot_product_flash_attention_backward"
    found = counted(name, HEADS, HEADS, HEADS, HEADS, HEADS)
    assert found.kind == ATTENTION
    assert found.flops == 2.5 * 4 * 2 * 8 * 128 * 128 * 64
    assert found.bytes == 5 * HEADS.size_bytes + 3 * HEADS.size_bytes


@pytest.mark.parametrize("backward", [False, True])
def test_attention_as_a_cpu_names_it(backward: bool) -> None:
    """A rehearsal sees the CPU's operator, which has its causal flag in another place."""
    query = half(2, 4, 128, 64)
    name = "aten::_scaled_dot_product_flash_attention_for_cpu" + "_backward" * backward
    given = (query,) * (5 if backward else 3)
    values = [None] * (7 if backward else 4)
    full, causal = (counted(name, *given, values=(*values, flag)) for flag in (False, True))
    assert full.kind == ATTENTION
    assert causal.flops == full.flops / 2


IMAGE, WEIGHT, MADE = half(2, 16, 32, 32), half(24, 16, 3, 3), half(2, 24, 32, 32)
FLOPS = 2 * (2 * 24 * 32 * 32) * (16 * 9)


def test_a_convolution() -> None:
    found = counted("aten::convolution", IMAGE, WEIGHT, None, outputs=(MADE,))
    assert (found.kind, found.flops) == (CONV, FLOPS)
    assert found.bytes == IMAGE.size_bytes + WEIGHT.size_bytes + MADE.size_bytes
    small = counted("aten::convolution", IMAGE, WEIGHT, None, outputs=(half(2, 24, 16, 16),))
    assert small.flops == FLOPS / 4


def test_groups_take_fewer_channels() -> None:
    grouped = counted("aten::convolution", IMAGE, half(24, 4, 3, 3), outputs=(MADE,))
    assert grouped.flops == FLOPS / 4
    depthwise = counted("aten::convolution", IMAGE, half(16, 1, 3, 3), outputs=(IMAGE,))
    assert depthwise.arithmetic == "vector"
    assert depthwise.flops == 2 * (2 * 16 * 32 * 32) * 9


def test_a_transposed_convolution_and_its_gradients_multiply_the_input() -> None:
    weight, made = half(16, 24, 2, 2), half(2, 24, 64, 64)
    flops = 2 * (2 * 16 * 32 * 32) * (24 * 4)
    values = (None,) * 6 + (True,)
    found = counted("aten::convolution", IMAGE, weight, values=values, outputs=(made,))
    assert found.flops == flops
    values = (None,) * 7 + (True, [0, 0], 1, [True, True, False])
    found = counted("aten::convolution_backward", made, IMAGE, weight, values=values)
    assert found.flops == 2 * flops


@pytest.mark.parametrize(
    ("mask", "products"), [([True, True, True], 2), ([False, True, False], 1), (None, 2)]
)
def test_gradients_of_a_convolution_that_are_wanted(mask, products) -> None:
    values = (None,) * 7 + (False, [0, 0], 1, mask)
    found = counted("aten::convolution_backward", MADE, IMAGE, WEIGHT, values=values)
    assert (found.kind, found.flops, found.kernels) == (CONV, FLOPS * products, products)
    moved = IMAGE.size_bytes + WEIGHT.size_bytes
    assert found.bytes == MADE.size_bytes + products * moved


# -- passes over memory ----------------------------------------------------------------------------

ROWS = Tensor((64, 256))


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "size"),
    [
        ("aten::add", (ROWS, ROWS), (ROWS,), 3 * 65536),
        ("aten::add_", (ROWS, ROWS), (), 3 * 65536),
        ("aten::add", (ROWS, Tensor((64, 256), strides=(0, 1))), (ROWS,), 2 * 65536 + 1024),
        ("aten::gt", (ROWS, ROWS), (Tensor((64, 256), "bool"),), 2 * 65536 + 64 * 256),
        ("aten::fill_", (ROWS, None), (), 65536),
        ("aten::copy_", (half(64, 256), ROWS), (), 65536 + 32768),
        ("aten::sum", (ROWS,), (Tensor(()),), 65536 + 4),
        ("aten::cat", ((ROWS, ROWS),), (Tensor((128, 256)),), 4 * 65536),
        ("aten::arange", (), (ROWS,), 65536),
        ("aten::arange", (), (), 0),
        (
            "aten::embedding",
            (Tensor((1000, 64)), Tensor((8, 4), "int64")),
            (Tensor((8, 4, 64)),),
            2 * 8192 + 256,
        ),
    ],
)
def test_inputs_are_read_and_outputs_written(name, inputs, outputs, size) -> None:
    found = counted(name, *inputs, outputs=outputs)
    assert (found.kind, found.flops, found.bytes, found.kernels) == (MEMORY, 0, size, 1)


@pytest.mark.parametrize(("row", "passes"), [(1023, 1), (1024, 1), (1025, 3), (1028, 1)])
def test_long_rows_that_are_not_aligned_are_read_three_times(row, passes) -> None:
    rows = Tensor((8, row))
    assert counted("aten::_softmax", rows, outputs=(rows,)).bytes == (passes + 1) * rows.size_bytes
    back = counted("aten::_softmax_backward_data", rows, rows, outputs=(rows,))
    assert back.bytes == (2 * (2 if passes > 1 else 1) + 1) * rows.size_bytes


def lists(number: int, each: int = 100, depth: int = 2):
    return tuple(tuple(Tensor((each,)) for _ in range(number)) for _ in range(depth))


def test_operators_over_lists() -> None:
    assert counted("aten::_foreach_add_", *lists(10)).bytes == 3 * 10 * 400
    assert counted("aten::_foreach_zero_", *lists(10, depth=1)).bytes == 10 * 400
    assert counted("aten::_foreach_copy_", *lists(10)).bytes == 2 * 10 * 400
    fused = counted("aten::_fused_adamw_", *lists(10, depth=4))
    assert fused.bytes == (4 + 3) * 10 * 400
    host = ((Tensor((4,), on_host=True),),)
    assert counted("aten::_foreach_add_", *host).kind == NOTHING


@pytest.mark.parametrize(
    ("number", "elements", "launches"),
    [(48, 100, 1), (49, 100, 2), (1, 65536 * 320, 1), (1, 65536 * 320 + 1, 2)],
)
def test_launches_of_operators_over_lists(number, elements, launches) -> None:
    assert counted("aten::_foreach_add_", *lists(number, elements)).kernels == launches


def test_what_starts_no_kernel() -> None:
    host = Tensor((64, 256), on_host=True)
    for found in (
        counted("aten::view", ROWS),
        counted("aten::empty.memory_format", ROWS),
        counted("aten::add", host, host),
        counted("aten::copy_", ROWS, host),
        counted("aten::_to_copy", host, outputs=(ROWS,)),
    ):
        assert (found.kind, found.kernels) == (NOTHING, 0)
