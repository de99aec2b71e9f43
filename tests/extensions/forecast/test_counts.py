"""FLOPs and bytes of calls, against values worked out by hand."""

from __future__ import annotations

import pytest

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call, Tensor
from auditor.extensions.forecast.counted import broadcast
from auditor.extensions.forecast.counts import count


def half(*shape: int) -> Tensor:
    return Tensor(shape, "bfloat16")


def counted(name, *inputs, values=(), outputs=(), **more):
    found = count(Call(name, inputs, values, outputs), **more)
    assert found is not None
    return found


def test_a_product_of_two_matrices() -> None:
    found = counted("aten::mm", half(128, 256), half(256, 512))
    assert found.kind == kinds.MATMUL
    assert found.flops == 2 * 128 * 256 * 512
    assert found.bytes == 2 * (128 * 256 + 256 * 512 + 128 * 512)
    assert found.product == (1, 128, 512, 256)
    assert found.arithmetic == "16-bit"


def test_what_is_added_to_a_product_is_read_at_its_own_size() -> None:
    bias = counted("aten::addmm", half(512), half(128, 256), half(256, 512))
    plain = counted("aten::mm", half(128, 256), half(256, 512))
    assert bias.bytes == plain.bytes + 2 * 512
    assert bias.flops == plain.flops


def test_what_is_added_is_never_more_than_the_result() -> None:
    """An ``out`` that a trace has among the inputs is written, not read."""
    more = (half(512), half(128, 256), half(256, 512), half(128, 512))
    plain = counted("aten::mm", half(128, 256), half(256, 512))
    assert counted("aten::addmm", *more).bytes == plain.bytes + 2 * 128 * 512


@pytest.mark.parametrize(
    ("name", "inputs", "product"),
    [
        ("aten::bmm", (half(8, 64, 32), half(8, 32, 16)), (8, 64, 16, 32)),
        ("aten::baddbmm", (half(8, 64, 16), half(8, 64, 32), half(8, 32, 16)), (8, 64, 16, 32)),
        ("aten::linear", (half(4, 10, 32), half(16, 32), half(16)), (1, 40, 16, 32)),
        ("aten::matmul", (half(4, 10, 32), half(32, 16)), (1, 40, 16, 32)),
        ("aten::matmul", (half(4, 10, 32), half(4, 32, 16)), (4, 10, 16, 32)),
        ("aten::mv", (half(10, 32), half(32)), (1, 10, 1, 32)),
        ("aten::dot", (half(32), half(32)), (1, 1, 1, 32)),
    ],
)
def test_sizes_of_products(name, inputs, product) -> None:
    found = counted(name, *inputs)
    batch, rows, columns, depth = product
    assert found.product == product
    assert found.flops == 2 * batch * rows * columns * depth


def test_factors_that_do_not_fit_are_not_counted() -> None:
    assert count(Call("aten::mm", (half(2, 3), half(4, 5)))) is None
    assert count(Call("aten::mm", (half(2, 3),))) is None
    assert count(Call("aten::linear", (half(2, 3), half(4, 5)))) is None


def test_tf32_is_torchs_default_for_convolutions_only() -> None:
    product = (Tensor((64, 64)), Tensor((64, 64)))
    assert counted("aten::mm", *product).arithmetic == "fp32"
    assert counted("aten::mm", *product, tf32_matmul=True).arithmetic == "tf32"
    images = (Tensor((1, 8, 9, 9)), Tensor((8, 8, 3, 3)))
    values = (None, None, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert counted("aten::convolution", *images, values=values).arithmetic == "tf32"
    found = counted("aten::convolution", *images, values=values, tf32_conv=False)
    assert found.arithmetic == "fp32"


def test_a_name_of_a_kernel_decides_on_the_arithmetic() -> None:
    call = Call("aten::mm", (Tensor((64, 64)), Tensor((64, 64))), arithmetic="tf32")
    found = count(call)
    assert found is not None
    assert found.arithmetic == "tf32"


IMAGE, WEIGHT = half(2, 16, 32, 32), half(24, 16, 3, 3)


def convolution(stride=1, padding=1, dilation=1, transposed=False, groups=1, weight=WEIGHT):
    both = [[each, each] for each in (stride, padding, dilation)]
    values = (None, None, None, *both, transposed, [0, 0], groups)
    return counted("aten::convolution", IMAGE, weight, None, values=values)


def test_a_convolution() -> None:
    found = convolution()
    assert found.kind == kinds.CONV
    assert found.flops == 2 * (2 * 24 * 32 * 32) * (16 * 9)
    assert found.bytes == 2 * (2 * 16 * 32 * 32 + 24 * 16 * 9 + 2 * 24 * 32 * 32)


def test_stride_padding_and_dilation_decide_on_the_output() -> None:
    taken = 2 * 2 * 24 * 16 * 9
    assert convolution(stride=2).flops == taken * 16 * 16
    assert convolution(padding=0).flops == taken * 30 * 30
    assert convolution(padding=0, dilation=2).flops == taken * 28 * 28


def test_cudnn_takes_padding_before_stride() -> None:
    values = (None, None, [1, 1], [2, 2], [1, 1], 1)
    found = counted("aten::cudnn_convolution", IMAGE, WEIGHT, values=values)
    assert found.flops == convolution(stride=2).flops


def test_groups_take_fewer_channels() -> None:
    grouped = convolution(groups=4, weight=half(24, 4, 3, 3))
    assert grouped.flops == convolution().flops / 4
    depthwise = convolution(groups=16, weight=half(16, 1, 3, 3))
    assert depthwise.arithmetic == "vector"
    assert depthwise.flops == 2 * (2 * 16 * 32 * 32) * 9


def test_a_transposed_convolution_multiplies_its_input() -> None:
    weight, output = half(16, 24, 2, 2), half(2, 24, 64, 64)
    values = (None, None, None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1)
    found = counted("aten::convolution", IMAGE, weight, values=values, outputs=(output,))
    assert found.flops == 2 * (2 * 16 * 32 * 32) * (24 * 4)


def test_gradients_of_a_transposed_convolution_multiply_its_input() -> None:
    gradient, weight = half(2, 24, 64, 64), half(16, 24, 2, 2)
    values = (None,) * 7 + (True, [0, 0], 1, [True, True, False])
    found = counted("aten::convolution_backward", gradient, IMAGE, weight, values=values)
    assert found.flops == 2 * 2 * (2 * 16 * 32 * 32) * (24 * 4)


def test_without_strides_or_output_a_convolution_is_not_known() -> None:
    found = counted("aten::cudnn_convolution", IMAGE, WEIGHT)
    assert found.kind == kinds.CONV_UNKNOWN
    known = counted("aten::cudnn_convolution", IMAGE, WEIGHT, outputs=(half(2, 24, 32, 32),))
    assert known.kind == kinds.CONV
    assert known.flops == found.flops


def test_winograd_is_for_small_windows_of_stride_1() -> None:
    same = convolution()
    assert same.vector_flops == pytest.approx(same.flops / 2.25)
    assert convolution(stride=2).vector_flops is None
    assert convolution(padding=0, weight=half(24, 16, 1, 1)).vector_flops is None


def test_odd_channels_leave_tiles_empty() -> None:
    assert convolution(weight=half(32, 16, 4, 4)).tile_share == 1
    assert convolution(weight=half(33, 16, 4, 4)).tile_share == pytest.approx(33 / 64)


@pytest.mark.parametrize(
    ("mask", "products"), [([True, True, True], 2), ([False, True, False], 1), (None, 2)]
)
def test_gradients_of_a_convolution_that_are_wanted(mask, products) -> None:
    gradient = half(2, 24, 32, 32)
    values = (None,) * 7 + (False, [0, 0], 1, mask)
    found = counted("aten::convolution_backward", gradient, IMAGE, WEIGHT, values=values)
    assert found.kind == kinds.CONV_BACKWARD
    assert found.flops == convolution().flops * products
    moved = IMAGE.size_bytes + WEIGHT.size_bytes
    assert found.bytes == gradient.size_bytes + products * moved


def test_old_gradients_of_a_convolution_have_their_output() -> None:
    gradient = half(2, 24, 32, 32)
    name = "aten::cudnn_convolution_backward_weight"
    found = counted(name, None, gradient, IMAGE, outputs=(WEIGHT,))
    assert found.flops == convolution().flops
    assert count(Call(name, (None, gradient, IMAGE))) is None


HEADS = half(2, 8, 128, 64)
"""Batch, heads, sequence, width."""


def test_attention_of_scaled_dot_product() -> None:
    name = "aten::_scaled_dot_product_flash_attention"
    found = counted(name, HEADS, HEADS, HEADS)
    assert found.kind == kinds.ATTENTION
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
    assert found.kind == kinds.ATTENTION_BACKWARD
    assert found.flops == 2.5 * 4 * 2 * 8 * 128 * 128 * 64
    assert found.bytes == 5 * HEADS.size_bytes + 3 * HEADS.size_bytes


def test_sequences_packed_in_one_tensor_are_not_counted() -> None:
    packed = half(300, 8, 64)
    assert count(Call("aten::_flash_attention_forward", (packed, packed, packed))) is None


ROWS = Tensor((64, 256))
LARGE = Tensor((32, 16, 8, 8))


@pytest.mark.parametrize(
    ("name", "inputs", "size"),
    [
        ("aten::add", (ROWS, ROWS), 3 * 65536),
        ("aten::add_", (ROWS, ROWS), 3 * 65536),
        ("aten::add", (ROWS, Tensor((256,))), 2 * 65536 + 1024),
        ("aten::relu", (ROWS,), 2 * 65536),
        ("aten::gt", (ROWS, ROWS), 2 * 65536 + 64 * 256),
        ("aten::fill_", (ROWS, None), 65536),
        ("aten::native_dropout", (ROWS,), 2 * 65536 + 64 * 256),
        ("aten::sum", (ROWS,), 65536),
        ("aten::cumsum", (ROWS,), 2 * 65536),
        ("aten::_softmax", (ROWS,), 2 * 65536),
        ("aten::clone", (ROWS,), 2 * 65536),
        ("aten::copy_", (half(64, 256), ROWS), 65536 + 32768),
        ("aten::cat", ((ROWS, ROWS),), 4 * 65536),
        ("aten::native_layer_norm", (ROWS, None, Tensor((256,)), Tensor((256,))), 133120),
        ("aten::cudnn_batch_norm", (LARGE, Tensor((16,))), 3 * LARGE.size_bytes + 64),
        ("aten::embedding", (Tensor((1000, 64)), Tensor((8, 4), "int64")), 2 * 8192 + 256),
        ("aten::index_select", (ROWS, None, Tensor((256,), "int64")), 2 * 65536 + 2048),
        ("aten::gather", (ROWS, None, Tensor((64, 2), "int64")), 2 * 512 + 1024),
    ],
)
def test_bytes_of_operators_that_memory_bounds(name, inputs, size) -> None:
    found = counted(name, *inputs)
    assert found.bytes == size
    assert found.flops == 0


def test_backwards_of_norms_read_twice() -> None:
    layer = counted("aten::native_layer_norm_backward", ROWS, ROWS)
    assert (layer.bytes, layer.kernels) == (5 * 65536, 2)
    batch = counted("aten::cudnn_batch_norm_backward", LARGE, LARGE)
    assert batch.bytes == 5 * LARGE.size_bytes


def test_a_norm_that_is_not_training_reads_its_input_once() -> None:
    values = (None,) * 5 + (False,)
    found = counted("aten::native_batch_norm", LARGE, values=values)
    assert found.bytes == 2 * LARGE.size_bytes


@pytest.mark.parametrize(("row", "passes"), [(1023, 1), (1024, 1), (1025, 3), (1028, 1)])
def test_long_rows_that_are_not_aligned_are_read_three_times(row, passes) -> None:
    rows = Tensor((8, row))
    found = counted("aten::_softmax", rows)
    assert found.bytes == (passes + 1) * rows.size_bytes


def test_pooling_by_its_stride() -> None:
    values = (None, [2, 2], [2, 2])
    found = counted("aten::max_pool2d_with_indices", LARGE, values=values)
    assert found.bytes == LARGE.size_bytes + LARGE.elements / 4 * 12
    found = counted("aten::_adaptive_avg_pool2d", LARGE, values=(None, [1, 1]))
    assert found.bytes == LARGE.size_bytes + 32 * 16 * 4


def test_outputs_that_are_known_need_no_guess() -> None:
    made = Tensor((32, 16, 3, 3))
    found = counted("aten::avg_pool2d", LARGE, outputs=(made,))
    assert found.bytes == LARGE.size_bytes + made.size_bytes
    assert counted("aten::arange", outputs=(ROWS,)).bytes == ROWS.size_bytes


def test_an_expanded_tensor_is_read_once() -> None:
    expanded = Tensor((64, 256), strides=(0, 1))
    assert counted("aten::add", ROWS, expanded).bytes == 2 * 65536 + 1024


def lists(number: int, each: int = 100, depth: int = 2):
    return tuple(tuple(Tensor((each,)) for _ in range(number)) for _ in range(depth))


def test_operators_over_lists() -> None:
    assert counted("aten::_foreach_add_", *lists(10)).bytes == 3 * 10 * 400
    assert counted("aten::_foreach_zero_", *lists(10, depth=1)).bytes == 10 * 400
    assert counted("aten::_foreach_copy_", *lists(10)).bytes == 2 * 10 * 400
    assert counted("aten::_foreach_norm", *lists(10, depth=1)).bytes == 10 * 400
    fused = counted("aten::_fused_adamw_", *lists(10, depth=4))
    assert fused.bytes == (4 + 3) * 10 * 400


@pytest.mark.parametrize(
    ("number", "elements", "launches"),
    [(64, 100, 1), (65, 100, 2), (1, 65536 * 320, 1), (1, 65536 * 320 + 1, 2)],
)
def test_launches_of_operators_over_lists(number, elements, launches) -> None:
    assert counted("aten::_foreach_add_", *lists(number, elements)).kernels == launches


def test_what_starts_no_kernel() -> None:
    for name in ("aten::view", "aten::t", "aten::empty.memory_format", "aten::detach"):
        found = counted(name, ROWS)
        assert (found.kind, found.kernels) == (kinds.NOTHING, 0)
    host = Tensor((64, 256), on_host=True)
    assert counted("aten::add", host, host).kind == kinds.NOTHING


def test_a_copy_to_the_device_is_no_kernel() -> None:
    host = Tensor((64, 256), on_host=True)
    found = counted("aten::copy_", ROWS, host)
    assert (found.kind, found.kernels, found.bytes) == (kinds.TRANSFER, 0, 65536)
    assert counted("aten::_to_copy", host, outputs=(ROWS,)).kind == kinds.TRANSFER


def test_calls_without_tensors_are_not_counted() -> None:
    for name in ("aten::add", "aten::sum", "aten::_softmax", "aten::cat", "aten::embedding"):
        assert count(Call(name)) is None


@pytest.mark.parametrize(
    ("shapes", "made"),
    [
        ([(3, 1), (1, 4)], (3, 4)),
        ([(4,), (3, 4)], (3, 4)),
        ([(), (2,)], (2,)),
        ([(0, 3), (1, 3)], (0, 3)),
        ([], ()),
    ],
)
def test_broadcast(shapes, made) -> None:
    assert broadcast(shapes) == made


@pytest.mark.parametrize("backward", [False, True])
def test_attention_as_a_cpu_names_it(backward: bool) -> None:
    """A rehearsal sees the CPU's operator, which has its causal flag in another place."""
    query = Tensor((2, 4, 128, 64), "bfloat16")
    name = "aten::_scaled_dot_product_flash_attention_for_cpu" + "_backward" * backward
    given = (query,) * (5 if backward else 3)
    place = 7 if backward else 4
    values = [None] * place
    full, causal = (count(Call(name, given, (*values, flag))) for flag in (False, True))
    assert full is not None and causal is not None
    assert full.kind == (kinds.ATTENTION_BACKWARD if backward else kinds.ATTENTION)
    assert causal.flops == full.flops / 2
