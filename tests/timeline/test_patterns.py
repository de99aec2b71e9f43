"""Patterns of operators, conversions, arithmetic of products, with exact rows and times."""

import numpy as np

from auditor.timeline import Timeline
from auditor.timeline.totals import FP32, TF32, matmul_ns
from tests.timeline.kineto import frame, write
from tests.timeline.programs import Program


def line(tmp_path, program, **head):
    return Timeline.of(write(tmp_path, program.trace(**head)))


def test_attention_in_pieces_counts_its_two_products_and_the_softmax_once(tmp_path):
    program = Program()
    for name, us in (
        ("aten::bmm", 10),
        ("aten::_softmax", 20),
        ("aten::bmm", 30),
        ("aten::_softmax", 40),
        ("aten::bmm", 50),
    ):
        program.operator(name, us)
    found = line(tmp_path, program).attention
    assert (len(found.softmax), found.ns) == (2, 150_000)


def test_attention_on_two_threads_is_none(tmp_path):
    program = Program()
    program.operator("aten::bmm", 10)
    program.operator("aten::_softmax", 10, tid=5)
    program.operator("aten::bmm", 10)
    assert line(tmp_path, program).attention.ns == 0


def test_a_conversion_is_counted_once_with_all_its_kernels(tmp_path):
    program = Program()
    with program.inside("aten::to"), program.inside("aten::_to_copy"):
        program.operator("aten::copy_", 10.0, kernels=2)
    program.operator("aten::copy_", 99.0)
    found = line(tmp_path, program).casts
    assert (len(found.rows), found.ns) == (1, 20_000)


def test_awkward_sizes_are_summed_over_operators(tmp_path):
    program = Program()
    half = ["c10::Half", "c10::Half"]
    for sizes in ([[4, 7], [7, 16]], [[9, 7], [7, 16]], [[4, 8], [8, 16]]):
        program.operator("aten::mm", 10.0, **{"Input Dims": sizes, "Input type": half})
    found = line(tmp_path, program).awkward_products
    assert (found.looked, found.sizes, found.ns) == (True, (("7 x 16", 20_000),), 20_000)


def test_broken_shapes_are_no_sizes(tmp_path):
    program = Program()
    for sizes in ([], [[4]], [[4, 7]], ["x", "y"], [[], []]):
        program.operator(
            "aten::mm", 10.0, **{"Input Dims": sizes, "Input type": ["c10::Half", "c10::Half"]}
        )
    assert line(tmp_path, program).awkward_products.sizes == ()


def test_matrix_products_are_told_from_convolutions_by_their_operator(tmp_path):
    program = Program()
    program.operator("aten::mm", 10.0, runs="ampere_sgemm_128x64_nn")
    program.operator("aten::cudnn_convolution", 20.0, runs="ampere_sgemm_128x64_nn")
    program.operator("aten::addmm", 30.0, runs="ampere_tf32_s1688gemm_128x64")
    found = line(tmp_path, program)
    use = found.devices[0]
    assert matmul_ns(found, use) == {FP32: 10_000, TF32: 30_000}


def test_operators_are_placed_in_the_users_function(tmp_path):
    program = Program()
    begin = program.host
    program.operator("aten::bmm", 10)
    program.think(5)
    program.events.append(frame("model.py(40): attend", begin, 200))
    program.events.append(frame("torch/nn/functional.py(9): softmax", begin + 1, 100))
    found = line(tmp_path, program)
    assert [
        (place.file, place.line, place.function) for place in found.places_of(np.array([0]))
    ] == [("model.py", 40, "attend")]
