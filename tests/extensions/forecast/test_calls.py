"""Calls as the profiler writes them, and which class an operator belongs to."""

from __future__ import annotations

import pytest

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call, Tensor, from_profiler
from auditor.extensions.forecast.kinds import kind_of


def test_a_convolution_as_kineto_writes_it() -> None:
    call = from_profiler(
        "aten::cudnn_convolution",
        [[128, 3, 224, 224], [768, 3, 16, 16], [], [], [], []],
        ["c10::BFloat16", "c10::BFloat16", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
        [[150528, 50176, 224, 1], [768, 256, 16, 1], [], [], [], []],
        ["", "", "[0, 0]", "[16, 16]", "[1, 1]", "1"],
    )
    assert call is not None
    assert call.tensors == (
        Tensor((128, 3, 224, 224), "bfloat16", (150528, 50176, 224, 1)),
        Tensor((768, 3, 16, 16), "bfloat16", (768, 256, 16, 1)),
    )
    assert call.integers(3) == (16, 16)
    assert call.integers(5) == (1,)
    assert call.integers(0) is None
    assert call.integers(99) is None


def test_lists_of_tensors_and_values() -> None:
    call = from_profiler(
        "aten::_foreach_add_",
        [[[2, 3], [4]], [], []],
        ["TensorList", "float", "Scalar"],
        None,
        ["", "", "True"],
    )
    assert call is not None
    assert call.lists == ((Tensor((2, 3)), Tensor((4,))),)
    assert call.tensors == (Tensor(()),)  # a number held in a tensor
    assert call.value(2) is True
    assert len(call.everything) == 3


@pytest.mark.parametrize(
    ("dims", "types"),
    [([[2, "a"]], ["float"]), ([[2, 3]], ["ScalarList"]), ([[-1]], ["float"]), ([5], ["float"])],
)
def test_what_is_no_tensor(dims, types) -> None:
    call = from_profiler("aten::add", dims, types)
    assert call is not None
    assert call.inputs == (None,)


def test_without_shapes_there_is_no_call() -> None:
    assert from_profiler("aten::add", None, None) is None
    short = from_profiler("aten::add", [[2], [3]], ["float"])
    assert short is not None
    assert short.tensors == (Tensor((2,)),)


def test_strides_that_do_not_fit_are_left_out() -> None:
    call = from_profiler("aten::add", [[2, 3]], ["float"], [[1]])
    assert call is not None
    assert call.tensors[0].strides is None


def test_bytes_of_tensors() -> None:
    assert Tensor((4, 8), "float16").size_bytes == 64
    assert Tensor((4, 8), "float16", (0, 1)).stored_bytes == 16
    assert Tensor((4, 8), "float16", (8, 1)).stored_bytes == 64
    assert Tensor((0, 8), strides=(0, 1)).stored_bytes == 0
    assert Tensor((), "float64").size_bytes == 8
    assert Tensor((4,), "float8_e4m3fn").item_bytes == 1


def test_an_overload_is_no_other_operator() -> None:
    assert Call("aten::add_.Tensor").operator == "add_"
    assert kind_of("aten::mm.default") == kinds.MATMUL
    assert kind_of("aten::_to_copy.default") == kinds.COPY


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", kinds.MATMUL),
        ("aten::cudnn_convolution_backward_input", kinds.CONV_BACKWARD),
        ("aten::_scaled_dot_product_flash_attention", kinds.ATTENTION),
        ("aten::_flash_attention_backward", kinds.ATTENTION_BACKWARD),
        ("aten::native_group_norm", kinds.NORM),
        ("aten::_fused_rms_norm_backward", kinds.NORM_BACKWARD),
        ("aten::_batch_norm_impl_index_backward", kinds.BATCH_NORM_BACKWARD),
        ("aten::_log_softmax_backward_data", kinds.SOFTMAX),
        ("aten::_foreach_norm", kinds.FOREACH),
        ("aten::_fused_adamw_", kinds.FOREACH),
        ("aten::index", kinds.LOOKUP),
        ("aten::index_put_", kinds.IRREGULAR),
        ("aten::scatter_add_", kinds.IRREGULAR),
        ("aten::sort", kinds.IRREGULAR),
        ("aten::embedding_dense_backward", kinds.IRREGULAR),
        ("aten::upsample_bilinear2d", kinds.POOLING),
        ("aten::mean", kinds.REDUCTION),
        ("aten::maximum", kinds.POINTWISE),
        ("aten::gelu_backward", kinds.POINTWISE),
        ("aten::stack", kinds.CAT),
        ("aten::slice", kinds.NOTHING),
        ("c10d::allreduce_", kinds.COLLECTIVE),
        ("nccl:all_reduce", kinds.COLLECTIVE),
        ("record_param_comms", kinds.COLLECTIVE),
        ("triton_poi_fused_add_0", kinds.CUSTOM),
        ("Torch-Compiled Region: 0/0", kinds.CUSTOM),
        ("fbgemm::permute_2D_sparse_data", kinds.CUSTOM),
        ("torchvision::nms", kinds.CUSTOM),
    ],
)
def test_classes_by_name(name, kind) -> None:
    assert kind_of(name) == kind
