"""Evidence of small traces, counted by hand, and properties against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.timeline import Timeline
from auditor.timeline.intervals import union
from auditor.timeline.totals import FP8, FP32, FP64, HALF, OTHER, TF32, arithmetic
from auditor.timeline.trace import Calls, Operators
from auditor.timeline.tree import _walk, call_tree, place_of
from auditor.timeline.waits import EXPLICIT
from tests.timeline.kineto import (
    call,
    kernel,
    launch,
    mark,
    note,
    op,
    span,
    sync,
    text,
    training,
    write,
)


@pytest.fixture
def line_of(tmp_path):
    return lambda *events: Timeline.of(write(tmp_path, text(events)))


@pytest.fixture
def line(line_of):
    return line_of(*training(3))


# steps


def test_of_two_optimizers_the_rarer_one_counts(line_of):
    often = [note("Optimizer.step#Adam.step", 10.0 * number, 2) for number in range(6)]
    rare = [note("Optimizer.step#SGD.step", 30.0 * number + 5, 2) for number in range(2)]
    assert line_of(*often, *rare).steps.count == 1


def test_marks_of_the_device_and_repeated_marks_are_not_steps(line_of):
    own = span("gpu_user_annotation", "ProfilerStep#1", 3, 10, pid=0, tid=7)
    assert line_of(mark(0, 10), mark(0, 10), own).steps.count == 1


# the call tree


def test_self_time_is_what_children_leave(line_of):
    line = line_of(op("outer", 0, 10), op("inner", 2, 3), op("inner", 6, 1))
    assert line.tree.self_ns().tolist() == [6000, 3000, 1000]


span_lists = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2), st.booleans()), max_size=40
)


@given(span_lists)
def test_the_tree_by_levels_equals_the_tree_span_by_span(spans):
    spans = [*(one for one in spans if not one[3]), *(one for one in spans if one[3])]
    count = sum(not one[3] for one in spans)
    start = np.array([one[0] for one in spans], np.int64)
    end = start + np.array([one[1] for one in spans], np.int64)
    thread = np.array([one[2] for one in spans], np.int32)
    rest = [np.zeros(count, np.int32)] * 3
    operators = Operators(
        start[:count], end[:count], rest[0], thread[:count], np.zeros(count, bool), *rest
    )
    calls = Calls(
        start[count:],
        end[count:],
        np.zeros(len(spans) - count, np.int32),
        thread[count:],
        np.zeros(len(spans) - count, np.int64),
    )
    tree = call_tree(operators, calls, np.empty(0, np.int64))
    leaf = np.arange(len(spans)) >= count
    for one in set(thread.tolist()):
        rows = np.flatnonzero(thread == one)
        order = rows[np.lexsort((leaf[rows], -end[rows], start[rows]))]
        above = _walk(start[order], end[order], leaf[order])
        assert tree.parent[order].tolist() == np.where(above >= 0, order[above], -1).tolist()


@pytest.mark.parametrize("wanted_each", [1, 7, 500, 10_000])
def test_operators_nested_thousands_deep_have_their_ancestors(wanted_each):
    """Ten chains of 3000 operators: found as climbing one by one finds them."""
    depth, chains = 3000, 10
    level = np.tile(np.arange(depth, dtype=np.int64), chains)
    thread = np.repeat(np.arange(chains, dtype=np.int32), depth)
    rest = [np.zeros(len(level), np.int32)] * 3
    none = np.empty(0, np.int64)
    operators = Operators(
        level, 3 * depth - level, rest[0], thread, np.zeros(len(level), bool), *rest
    )
    tree = call_tree(
        operators, Calls(none, none, none.astype(np.int32), none.astype(np.int32), none), none
    )
    wanted = level % wanted_each == wanted_each // 2
    nearest = np.where(level > 0, level - 1, -1)
    nearest -= np.where(nearest >= 0, (nearest - wanted_each // 2) % wanted_each, 0)
    base = np.arange(len(level)) - level
    rows = np.arange(len(level))
    assert (
        tree.nearest(rows, wanted).tolist() == np.where(nearest >= 0, base + nearest, -1).tolist()
    )
    outermost = np.where(nearest >= 0, base + wanted_each // 2, -1)
    assert tree.outermost(rows, wanted).tolist() == outermost.tolist()


# intervals

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), max_size=12)


def cells(intervals):
    return {
        cell
        for start, end in zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)
        for cell in range(start, end)
    }


def made(spans):
    start = np.array([one[0] for one in spans], np.int64)
    return union(start, start + np.array([one[1] for one in spans], np.int64))


@given(pairs, pairs)
def test_intervals_against_sets_of_cells(one, other):
    ours, theirs = made(one), made(other)
    assert cells(ours) == {cell for start, size in one for cell in range(start, start + size)}
    assert ours.length == len(cells(ours))
    assert ours.overlap(theirs) == len(cells(ours) & cells(theirs))
    assert cells(ours.within(theirs)) == cells(ours) & cells(theirs)
    if len(ours.start):
        everything = set(range(int(ours.start[0]), int(ours.end[-1])))
        assert cells(ours.gaps()) == everything - cells(ours)


# devices


def test_launches_are_joined_by_correlation_and_zero_joins_nothing(line_of):
    line = line_of(launch(0, 1, 5), launch(2, 1, 0), kernel("a", 3, 1, 5), kernel("b", 4, 1, 0))
    assert line.launches.call_of_work.tolist() == line.launches.work_of_call.tolist() == [0, -1]
    assert line.launch_delay_ns.tolist() == [3000]
    graph = line_of(call("cudaGraphLaunch", 0, 1, 5), kernel("a", 3, 1, 5), kernel("b", 4, 1, 5))
    assert graph.launches.call_of_work.tolist() == [0, 0]


# waits


def test_a_users_synchronisation_is_not_the_profilers(line_of):
    events = training(2)
    events.insert(5, call("cudaDeviceSynchronize", 1900, 20, 777))
    found = line_of(*events).waits
    mine = found.start == 1_900_000
    assert found.cause[mine].tolist() == [EXPLICIT]
    assert found.profiler[mine].tolist() == [False]


@pytest.mark.parametrize(
    ("after", "profilers"),
    [
        ([], True),
        ([op("aten::add", 2999, 1)], True),
        ([op("aten::add", 3201, 1)], False),  # the program goes on
        ([launch(2999, 1, 778)], True),
        ([launch(3201, 1, 778)], False),  # as a library that is not torch's launches
        ([call("cudaMemcpyAsync", 3201, 1, 778)], False),
        ([note("done", 3201, 1)], True),  # no work
    ],
)
def test_the_last_synchronisation_is_the_profilers_only_if_no_work_follows(
    line_of, after, profilers
):
    found = line_of(*training(2), *after).waits
    assert found.profiler[found.start == 3_200_000].tolist() == [profilers]


@pytest.mark.parametrize(("at", "profilers"), [(900, True), (1005, False), (1200, False)])
def test_a_synchronisation_before_the_first_operator_is_the_profilers_outside_the_steps(
    line_of, at, profilers
):
    found = line_of(call("cudaDeviceSynchronize", at, 3, 777), *training(2)).waits
    assert found.profiler[found.start == 1000 * at].tolist() == [profilers]


def test_reads_of_host_tensors_are_no_waits(line_of):
    decoys = [op("aten::_local_scalar_dense", 3000.0 + number, 0.5) for number in range(5)]
    assert len(line_of(*training(2), *decoys).waits.call) == len(line_of(*training(2)).waits.call)


# prices: what a wait costs


FIRST = kernel("a", 0, 100)


def event_sync(ts, dur):
    return call("cudaEventSynchronize", ts, dur, 1)


PRICES = {
    "from the end of the launching call on the work was queued": (
        [FIRST, sync(10, 95, 1), launch(120, 5, 2), kernel("b", 130, 10, 2)], [20_000]
    ),
    "a short wait cannot win back more than it took": (
        [FIRST, sync(102, 3, 1), launch(900, 5, 2), kernel("b", 910, 10, 2)], [3_000]
    ),
    "the device still works after it": (
        [kernel("a", 0, 500), event_sync(10, 95), kernel("b", 600, 10)], [0]
    ),
    "work was queued behind it already": (
        [FIRST, launch(5, 5, 2), event_sync(20, 85), kernel("b", 150, 10, 2)], [0]
    ),
    "those in one gap share it in proportion to the time each held": (
        [FIRST, sync(10, 90, 1), sync(110, 10, 2), launch(140, 5, 3), kernel("b", 150, 10, 3)],
        [40_500, 4_500],
    ),
    "idle time behind the step is not the step's": (
        [mark(0, 120), FIRST, sync(10, 95, 1), kernel("b", 500, 10)], [15_000]
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", PRICES)
def test_what_a_wait_costs(line_of, why):
    events, won = PRICES[why]
    assert line_of(*events).waits.won_back.tolist() == won


waiting = st.lists(st.tuples(st.integers(0, 900), st.integers(0, 200)), min_size=1, max_size=8)


@given(waiting, waiting)
def test_prices_never_exceed_the_step_nor_the_idle_time(tmp_path_factory, held, worked):
    events = [mark(0, 500), mark(500, 500, 2)]
    events += [
        sync(start, size, 1000 + number, tid=number % 2)
        for number, (start, size) in enumerate(held)
    ]
    events += [kernel("k", start, size) for start, size in worked]
    line = Timeline.of(write(tmp_path_factory.getbasetemp(), text(events)))
    waits, gaps = line.waits, line.busy.gaps()
    assert (waits.won_back <= waits.held).all()
    assert waits.won_back.sum() <= gaps.length
    for step in range(2):
        assert waits.won_back[waits.step == step].sum() <= 500_000


# the rest


NOT_THE_USERS = (
    "torch/nn/modules/module.py(1): f",
    "/usr/lib/python3.11/queue.py(2): get",
    "threading.py(3): run",
    "multiprocessing/queues.py(1): get",
    *("<frozen runpy>(4): x", "<string>(1): x", "nn.Module: Linear_0", "<built-in method x>"),
)
THE_USERS = (
    *("train.py(3): main", "src/models/net.py(12): forward", "C:\\work\\a.py(1): f"),
    *("test.py(3): main", "/home/me/my_torch_project/a.py(4): g"),
)


@pytest.mark.parametrize("name", [*NOT_THE_USERS, *THE_USERS])
def test_frames_that_are_the_users(name):
    assert (place_of(name) is not None) is (name in THE_USERS)


@pytest.mark.parametrize(
    ("kernel_name", "kind"),
    [
        ("volta_sgemm_128x64_nn", FP32),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", HALF),
        ("volta_h884gemm_64x128_ldg8_nn", HALF),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", HALF),
        ("ampere_sgemm_128x64_tn", FP32),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", HALF),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x6_nn", HALF),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4", TF32),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8", HALF),
        ("cutlass_80_simt_sgemm_128x32_8x5_tn_align1", FP32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x64_stage3", TF32),
        (
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas",
            HALF,
        ),
        ("sm86_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x8_stage3", FP64),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT", HALF),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NTT", HALF),
        ("nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", HALF),
        ("nvjet_qqtst_128x128_128x6_2x1_v_bz_TNN", FP8),
        ("Cijk_Ailk_Bljk_SB_MT128x128x16_SE", FP32),
        ("Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI32x32x8x1", HALF),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", HALF),
        ("Cijk_Alik_Bljk_F8BS_BH_MT256x256x128", FP8),
        (
            (
                "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
                "cutlass::bfloat16_t>>(Flash_fwd_params)"
            ),
            HALF,
        ),
        (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)",
            FP32,
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
            None,
        ),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>", None),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", None),
        ("gemm_of_a_future_library", OTHER),
    ],
)
def test_arithmetic_by_kernel_name(kernel_name, kind):
    assert arithmetic(kernel_name) == kind
