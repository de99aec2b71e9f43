"""Which numbers are looked at, which of them may be infinite or NaN, and what is no plain tensor."""

import math
import warnings
from collections import OrderedDict, defaultdict

import pytest
import torch

from auditor.extensions.checkpoints import walk
from auditor.extensions.checkpoints.walk import Walk

NAN = torch.tensor([1.0, math.nan])
ONES = torch.ones(2)
FORBID = torch.full((3, 3), -math.inf).triu(1)


def walked(content):
    found = Walk()
    found.take(content)
    return found


def bad(content):
    tensors = walked(content).tensors
    return [
        each.name
        for each in tensors
        if each.role != "other" and each.tally and each.tally.nonfinite
    ]


# -- no plain tensor -------------------------------------------------------------------------------


class Sub(torch.Tensor):
    pass


def odd():
    yield "quantized", torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8)
    yield "of the layout sparse_coo", torch.eye(2).to_sparse()
    yield "of the layout sparse_csr", torch.eye(2).to_sparse_csr()
    yield "nested", torch.nested.nested_tensor([ONES, torch.ones(3)])
    yield "a NestedTensor", torch.nested.nested_tensor([ONES, torch.ones(3)], layout=torch.jagged)
    yield "of float8_e4m3fn", ONES.to(torch.float8_e4m3fn)
    yield "of complex32", ONES.to(torch.complex32)
    yield "a Sub", ONES.as_subclass(Sub)
    yield "expanded beyond its storage", torch.ones(1).expand(1000)
    yield "of the device meta", torch.ones(2, device="meta")
    yield "of UntypedStorage", NAN.untyped_storage()
    yield "of TypedStorage", torch.FloatStorage([1.0])


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of prototypes
    ODD = dict(odd())


@pytest.mark.parametrize("why", ODD)
def test_what_is_no_plain_tensor_is_named_and_the_rest_is_looked_at(why):
    value = ODD[why]
    (limit,) = walked({"model": {"w": value, "b": ONES}}).limits
    assert limit.startswith("model.w is") and why.removeprefix("of ") in limit
    assert bad({"model": {"w": value, "b": NAN}}) == ["model.b"]


@pytest.mark.filterwarnings("ignore")  # of saving prototypes
@pytest.mark.parametrize(
    "name", ["quantized", "of the layout sparse_coo", "nested", "of float8_e4m3fn"]
)
def test_it_comes_from_a_file_as_well(judged, name):
    found = judged({"model": {"w": ODD[name]}})
    assert found.verdict == "not looked at" and found.said.endswith("not wholly looked at")


# -- numbers that are found ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.complex64,
        torch.complex128,
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_of_many_is_found_wherever_it_is(monkeypatch, dtype, value):
    monkeypatch.setattr(walk, "PIECE", 8)
    for at in (0, 34, 59):
        weight = torch.ones(60, dtype=dtype)
        weight[at] = value
        for shape in (weight, weight.reshape(3, 20), weight.reshape(20, 3).t()):
            (found,) = walked({"w": shape}).tensors
            tally = found.tally
            assert tally.nonfinite == 1 and tally.count in (60, 120) and tally.high == 1.0
            assert [tally.nan, tally.positive_inf, tally.negative_inf] == [
                int(math.isnan(value)),
                int(value == math.inf),
                int(value == -math.inf),
            ]


def test_what_lies_between_the_numbers_of_a_view_is_not_looked_at():
    whole = torch.full((4, 6), math.nan)
    whole[:, 2] = 1.0
    assert bad({"w": whole[:, 2]}) == []


def test_empty_tensors_and_views_of_one_storage():
    weight = torch.ones(4, 4)
    assert bad({"a": weight, "b": weight[1], "c": weight[:0], "d": weight.t()}) == []
    weight[1, 1] = math.nan
    assert bad({"a": weight, "b": weight[0], "c": weight, "d": weight[1]}) == ["a", "c", "d"]


def attributed():
    weight = torch.nn.Parameter(ONES.clone())
    weight.scale_of = NAN
    weight.itself = weight
    return weight


def with_attributes():
    state = OrderedDict(w=ONES)
    state.more = NAN
    return state


def covered():
    """A parameter and a state whose methods are hidden by attributes."""
    weight = torch.nn.Parameter(NAN.clone())
    for name in ("detach", "numel", "untyped_storage", "isfinite", "split", "dim"):
        setattr(weight, name, torch.Size)
    state = OrderedDict(w=weight)
    state.items = state.values = state.keys = torch.Size
    return state


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (covered(), ["w"]),
        ({"optimizer": {"state": covered(), "param_groups": []}}, ["optimizer.state.w"]),
        (NAN, ["(the file)"]),
        ([ONES, (NAN,)], ["[1][0]"]),
        ({"model": {0: NAN}}, ["model[0]"]),
        ({NAN: 1}, ["key"]),
        ({(1, NAN): 1}, ["key[1]"]),
        ({"model": attributed()}, ["model.scale_of"]),
        ({"model": with_attributes()}, ["model.more"]),
        (defaultdict(list, w=NAN), ["w"]),
        ({"ema": [ONES, NAN]}, ["ema[1]"]),
        ({"metrics": (shared := {"a.w": torch.full((2, 2), math.nan)}), "m": shared}, None),
    ],
    ids=range(12),
)
def test_weights_of_any_container_are_looked_at(content, names):
    assert bad(content) == (names or ["metrics.a.w", "m.a.w"])


def test_a_list_in_itself_ends():
    ring = [ONES]
    ring.append(ring)
    assert bad(ring) == []


# -- numbers that may be so ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"metrics": {"iou": NAN, "loss": math.nan}},
        {"early_stopping": {"best": torch.tensor(math.inf), "wait": 1}},
        {"callbacks": {"a": {"best_model_score": torch.tensor(math.inf)}}},
        {"best_loss": math.inf, "history": [NAN]},
        {"config": {"eps": math.inf, "seeds": [math.nan]}},
        {"model": {"w": ONES, "attn.mask": FORBID, "causal": FORBID, "mask_1": FORBID[0]}},
        {"a.weight": ONES, "a.observer.min_val": torch.tensor(math.inf), "a.max_vals": ONES / 0},
    ],
    ids=str,
)
def test_results_bounds_and_masks_are_named_and_no_damage(more):
    found = walked({"model": {"w": ONES}, **more})
    assert bad({"model": {"w": ONES}, **more}) == [] and found.limits == ()
    assert len(found.aside) == 1 and "no damage" in found.aside[0]


HIDING = """
    log_alpha log_std ema_log_alpha loss_weights loss_scale metric_head score_proj history_embedding
    max_pool_gain limit_embedding minimal w theta
""".split()


@pytest.mark.parametrize("key", HIDING)
def test_a_word_inside_a_key_makes_no_result_and_no_bound(key):
    assert bad({"model": {"w": ONES, key: NAN}}) == [f"model.{key}"]
    assert bad({"w": ONES, key: ONES / 0}).count(key) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fc.weight", FORBID),
        ("mask.weight", FORBID),
        ("mask", FORBID + torch.tensor(math.nan)),
        ("mask", -FORBID.nan_to_num(0, neginf=-math.inf)),
        ("mask", torch.full((2,), -math.inf)),
        ("mask", torch.nn.Parameter(FORBID)),
        ("losses", torch.full((4, 4), math.nan)),
        ("loss", torch.nn.Parameter(NAN)),
        ("best", NAN),
    ],
    ids=str,
)
def test_near_misses_of_masks_results_and_bounds_are_damage(key, value):
    assert bad({"state_dict": {key: value, "b": ONES}}) == [f"state_dict.{key}"]


def trainer(**more):
    group = {"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}
    content = {
        "model": {"w": ONES},
        "optimizer": {"state": {0: {"step": 3.0, "exp_avg": ONES}}, "param_groups": [group]},
        "plateau": {"last_epoch": 3, "_last_lr": [0.1], "best": math.inf, "mode_worse": math.inf},
        "scaler": {"scale": 2.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 9},
    }
    for path, value in more.items():
        *ahead, last = path.split("__")
        owner = content
        for key in ahead:
            owner = owner[int(key) if key.isdigit() else key]
        owner[last] = value
    return content


@pytest.mark.parametrize(
    "where",
    [
        {"optimizer__param_groups__0__lr": math.nan},
        {"optimizer__param_groups__0__betas": (0.9, math.inf)},
        {"optimizer__state__0__step": math.inf},
        {"optimizer__state__0__max_exp_avg_sq": ONES / 0},
        {"plateau___last_lr": [math.nan]},
        {"plateau__best": math.nan},
        {"scaler__scale": math.inf},
        {"model__gamma": math.nan},
        {"model__gamma": [1.0, math.inf]},
    ],
    ids=str,
)
def test_plain_numbers_of_what_trains_are_looked_at(where):
    assert bad(trainer()) == []
    assert len(bad(trainer(**where))) == 1


@pytest.mark.parametrize("content", [{"weights": [[0.1, math.nan]]}, {"x": math.nan}, [[math.inf]]])
def test_plain_numbers_of_which_nothing_says_what_they_are(content):
    found = walked(content)
    assert "no key says what it is" in found.limits[0] and found.aside == ()


# -- parts -----------------------------------------------------------------------------------------


def test_parts_are_known_by_their_keys():
    found = walked({**trainer(), "epoch": 4, "global_step": 90, "rng_state": ONES.to(torch.uint8)})
    assert [*found.optimizers, *found.schedulers, *found.scalers] == [
        ("optimizer",),
        ("plateau",),
        ("scaler",),
    ]
    assert found.rng and found.progress == {"epoch": 4, "global_step": 90}
    assert {each.name: each.role for each in found.tensors} == {
        "model.w": "model",
        "optimizer.state[0].exp_avg": "optimizer",
        "rng_state": "other",
    }
