"""Forecasts of a step: intervals, what they cover, and when nothing is said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from auditor.errors import AuditProblem
from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call, Tensor
from auditor.extensions.forecast.data_sheets import sheet_of
from auditor.extensions.forecast.forecasting import LEAST_US, MOST_UNFITTED, forecast, kernel_us
from auditor.extensions.forecast.intervals import LEAST_RATIO, Spread
from tests.extensions.forecast.fitted import made

SQUARE = Tensor((4096, 4096), "bfloat16")
PRODUCT = Call("aten::mm", (SQUARE, SQUARE), times=40)
BANDWIDTH = sheet_of("H100").bandwidth


def streamed(us: float, name: str = "aten::add") -> Call:
    """A call that the numbers made by hand predict at so many us (its kernel's own us among them):
    two tensors read, one written, at the data sheet's bandwidth.
    """
    elements = round((us - 1.0) * BANDWIDTH / 1e6 / 12)
    tensor = Tensor((elements,))
    return Call(name, (tensor, tensor))


def test_an_interval_and_its_parts() -> None:
    numbers = made(Spread(1.0, 3.0))
    found = forecast([PRODUCT, streamed(2000)], "H100", numbers=numbers)
    assert found.reasons == ()
    assert found.lower_us is not None and found.upper_us is not None
    assert found.upper_us == pytest.approx(3 * found.lower_us)
    assert found.gpu == "H100"
    assert found.fitted
    assert found.covered == pytest.approx(1.0)
    assert {each.kind for each in found.kinds} == {kinds.MATMUL, kinds.POINTWISE}
    assert sum(each.share for each in found.kinds) == pytest.approx(1.0)
    assert {each.kind: each.calls for each in found.kinds}[kinds.MATMUL] == 40


def test_calls_that_are_alike_count_as_often_as_they_ran() -> None:
    once = Call("aten::mm", (SQUARE, SQUARE))
    apart = forecast([once] * 40, "H100", numbers=made())
    together = forecast([PRODUCT], "H100", numbers=made())
    assert together.lower_us == pytest.approx(apart.lower_us)


def test_a_gpu_that_was_not_fitted_has_twice_the_width() -> None:
    numbers = made(Spread(0.95, 2.5))
    fitted = forecast([PRODUCT], "H100", numbers=numbers)
    other = forecast([PRODUCT], "B200", numbers=numbers)
    assert not other.fitted
    assert fitted.lower_us and fitted.upper_us and other.lower_us and other.upper_us
    width = math.log(fitted.upper_us / fitted.lower_us)
    assert math.log(other.upper_us / other.lower_us) == pytest.approx(2 * width)


@pytest.mark.parametrize("gpu", ["L4", "A10", "T4", "RTX4090", "MI300X"])
def test_gpus_that_only_have_a_data_sheet(gpu) -> None:
    found = forecast([PRODUCT], gpu)
    assert not found.fitted
    assert found.lower_us is not None and found.upper_us is not None
    assert found.upper_us / found.lower_us >= LEAST_RATIO


@pytest.mark.parametrize("gpu", ["H100", "H200", "B200", "A100", "L40S", "NVIDIA A100-SXM4-40GB"])
def test_gpus_that_were_fitted(gpu) -> None:
    found = forecast([PRODUCT], gpu)
    assert found.fitted
    assert found.lower_us is not None and found.upper_us is not None
    assert found.upper_us / found.lower_us >= LEAST_RATIO * 0.999


def test_a_gpu_that_is_not_known() -> None:
    with pytest.raises(AuditProblem, match="no data sheet"):
        forecast([PRODUCT], "GTX 970")


@pytest.mark.parametrize(("us", "said"), [(LEAST_US - 5, True), (LEAST_US + 5, False)])
def test_less_than_a_millisecond_says_nothing(us, said) -> None:
    found = forecast([streamed(us)], "H100", numbers=made())
    assert bool(found.reasons) == said
    assert (found.lower_us is None) == said
    if said:
        assert "1 ms" in found.reasons[0]


@pytest.mark.parametrize(("share", "said"), [(MOST_UNFITTED - 0.01, False), (0.21, True)])
@pytest.mark.parametrize("name", ["aten::sort", "aten::cat"])
def test_too_much_time_in_classes_that_are_not_fitted(share, said, name) -> None:
    calls = [streamed(10_000 * (1 - share)), streamed(10_000 * share, "aten::index_add")]
    if name == "aten::cat":
        elements = round((10_000 * share - 1) * BANDWIDTH / 1e6 / 8)
        calls[1] = Call("aten::cat", ((Tensor((elements,)),),))
    found = forecast(calls, "H100", numbers=made())
    assert found.covered == pytest.approx(1 - share, abs=0.002)
    assert bool(found.reasons) == said
    if said:
        assert "not fitted" in found.reasons[0]


def test_a_convolution_without_strides_is_not_covered() -> None:
    image, weight = Tensor((64, 64, 128, 128)), Tensor((64, 64, 3, 3))
    found = forecast([Call("aten::cudnn_convolution", (image, weight), times=50)], "H100")
    assert found.lower_us is None
    assert kinds.CONV_UNKNOWN in found.reasons[0]
    assert found.covered == 0


@pytest.mark.parametrize(("error", "said"), [(0.5, False), (0.51, True)])
def test_a_class_that_its_numbers_do_not_serve_is_not_covered(error, said) -> None:
    found = forecast([streamed(5000)], "H100", numbers=made(error=error))
    assert bool(found.reasons) == said


@pytest.mark.parametrize(("groups", "said"), [(2, False), (1, True)])
def test_a_class_that_one_group_judged_is_not_covered(groups, said) -> None:
    found = forecast([streamed(5000)], "H100", numbers=made(groups=groups))
    assert bool(found.reasons) == said


def test_a_class_that_was_never_seen_is_not_covered() -> None:
    numbers = made(only=(kinds.POINTWISE,))
    found = forecast([streamed(5000, "aten::_softmax")], "H100", numbers=numbers)
    assert found.covered == 0
    assert found.reasons


def test_the_makers_numbers_are_his_own() -> None:
    found = forecast([streamed(50_000)], "MI300X", numbers=made())
    assert found.covered == 0  # fitted for the other maker alone


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("triton_poi_fused_add_0", "compiled or custom"),
        ("flash_attn::_flash_attn_forward", "compiled or custom"),
        ("c10d::allreduce_", "several GPUs"),
        ("nccl:all_reduce", "several GPUs"),
    ],
)
def test_what_shapes_do_not_tell_says_nothing(name, word) -> None:
    found = forecast([PRODUCT, Call(name, (SQUARE,))], "H100", numbers=made())
    assert found.lower_us is None and found.upper_us is None
    assert len(found.reasons) == 1
    assert word in found.reasons[0]


def test_calls_whose_shapes_are_missing_are_not_covered() -> None:
    calls = [streamed(2000), *[Call("aten::add", times=5000)]]
    found = forecast(calls, "H100", numbers=made())
    assert found.covered < 0.5
    assert found.reasons


def test_views_and_the_hosts_own_work_cost_nothing() -> None:
    host = Tensor((1 << 20,), on_host=True)
    free = [Call("aten::view", (SQUARE,)), Call("aten::add", (host, host))]
    assert kernel_us(free, "H100").tolist() == [0, 0]
    with_them = forecast([PRODUCT, *free], "H100", numbers=made())
    assert with_them == forecast([PRODUCT], "H100", numbers=made())


def test_a_step_without_calls() -> None:
    found = forecast([], "H100")
    assert found.lower_us is None
    assert found.kinds == ()


def test_an_interval_never_reaches_below_the_data_sheet() -> None:
    numbers = made(spread=Spread(0.001, 2.0))
    found = forecast([streamed(5000)], "H100", numbers=numbers)
    assert found.lower_us == pytest.approx(4999, rel=1e-3)
    assert found.upper_us == pytest.approx(10_000, rel=1e-3)


def test_products_of_odd_sizes_take_longer_from_hopper_on() -> None:
    odd = Call("aten::mm", (Tensor((4096, 4095), "bfloat16"), Tensor((4095, 4095), "bfloat16")))
    even = Call("aten::mm", (SQUARE, SQUARE))
    numbers = made(unaligned=2.5)
    hopper = kernel_us([odd, even], "H100", numbers=numbers)
    ampere = kernel_us([odd, even], "A100", numbers=numbers)
    assert hopper[0] > 2.2 * hopper[1]
    assert ampere[0] == pytest.approx(ampere[1], rel=0.01)


def test_times_for_a_replay_are_those_of_the_forecast() -> None:
    calls = [PRODUCT, streamed(2000)]
    numbers = made(spread=Spread(1.0, 3.0))
    times = kernel_us(calls, "H100", numbers=numbers)
    found = forecast(calls, "H100", numbers=numbers)
    assert found.lower_us == pytest.approx(float((times * np.array([40, 1])).sum()))


def test_tf32_is_faster_where_there_is_any() -> None:
    single = Call("aten::mm", (Tensor((4096, 4096)), Tensor((4096, 4096))))
    slow, fast = (
        kernel_us([single], "A100", tf32_matmul=each, numbers=made())[0] for each in (False, True)
    )
    assert fast < slow / 3
    same = [kernel_us([single], "V100", tf32_matmul=each)[0] for each in (False, True)]
    assert same[1] <= same[0] * 1.5


def test_calls_of_several_steps_are_those_of_one() -> None:
    once = forecast([PRODUCT], "H100", numbers=made())
    several = forecast(
        [Call(PRODUCT.name, PRODUCT.inputs, times=120)], "H100", steps=3, numbers=made()
    )
    assert once.lower_us is not None
    assert (several.lower_us, several.flops) == (
        pytest.approx(once.lower_us),
        pytest.approx(40 * 2 * 4096**3),
    )


def test_mfu_is_of_the_lower_end_and_never_more_than_all() -> None:
    wide = forecast([PRODUCT], "H100", numbers=made(Spread(0.5, 3.0)))
    assert wide.lower_us is not None and wide.mfu_at_most is not None
    sheet = sheet_of("H100")
    assert wide.mfu_at_most == pytest.approx(wide.flops / (wide.lower_us * 1e-6 * sheet.half))
    assert wide.mfu_at_most <= 1.0
    assert forecast([streamed(10)], "H100", numbers=made()).mfu_at_most is None
