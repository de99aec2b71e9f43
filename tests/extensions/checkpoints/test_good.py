"""What is called good: torch loads it without running code, and every number was looked at.

Each attack was good once: some crash whoever reads the tensor, others hide a NaN.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import math
import types
import uuid
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.evidence import pickled_names
from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints import opcodes, pickles, tensors
from auditor.extensions.checkpoints.scan import checkpoints_in, passed_over, scan, scan_any
from fuzz import real_checkpoints
from fuzz.crafted import REBUILD, Again, Call, Data, Global, archive, data, tensor

NAN = torch.tensor([1.0, math.nan])
ONES = torch.ones(2)


@pytest.fixture
def judged(tmp_path):
    def judge(content, name="x.pt"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path)
        return Checkpoint(scan(path))

    return judge


# -- indexes of shards -----------------------------------------------------------------------------


def sharded(folder, **files):
    """An index beside two shards, one of them poisoned."""
    (folder / "sub").mkdir()
    for name, weight in (("a.safetensors", ONES), ("sub/b.safetensors", NAN)):
        (folder / name).write_bytes(real_checkpoints.safetensors(**{name[-13]: weight}))
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    return Checkpoint(scan_any(index))


@pytest.mark.parametrize(
    "hidden", ["sub/b.safetensors", "../b.safetensors", "/b.safetensors", "", ".", "sub\\b", "c\0"]
)
def test_a_shard_that_is_not_beside_its_index_is_damage(tmp_path, hidden):
    found = sharded(tmp_path, a="a.safetensors", b=hidden)
    assert not found.good and "does not lie beside its index" in found.scan.damage[0]


def test_a_whole_index_is_good_and_its_shards_are_not_read_twice(tmp_path):
    assert sharded(tmp_path, a="a.safetensors").good
    assert [each.name for each in checkpoints_in(tmp_path)] == ["model.safetensors.index.json"]


def test_names_of_any_length_are_found_in_their_shard(tmp_path):
    name = "layer." * 50 + "weight"
    (tmp_path / "a.safetensors").write_bytes(real_checkpoints.safetensors(**{name: ONES}))
    index = tmp_path / "m.index.json"
    index.write_text(json.dumps({"weight_map": {name: "a.safetensors"}}))
    assert Checkpoint(scan_any(index)).good


def test_a_tensor_must_be_in_the_shard_that_the_index_gives_for_it(tmp_path):
    (tmp_path / "b.safetensors").write_bytes(real_checkpoints.safetensors(b=ONES))
    found = sharded(tmp_path, a="b.safetensors", b="a.safetensors")
    assert len(found.scan.damage) == 2


def test_limits_of_a_shard_are_those_of_the_whole(tmp_path):
    (tmp_path / "w.bin").write_bytes(
        archive({"w": tensor(ONES), "more": nested_deep(tensor(ONES))})
    )
    (tmp_path / "m.index.json").write_text('{"weight_map": {"w": "w.bin"}}')
    found = Checkpoint(scan_any(tmp_path / "m.index.json"))
    assert (
        not found.good and not found.scan.damage and found.scan.limits[0].startswith("shard w.bin")
    )


def test_shards_without_an_index_are_all_there(tmp_path):
    def shard(number, of=2, name="model", suffix="safetensors"):
        path = tmp_path / f"{name}-{number:05}-of-{of:05}.{suffix}"
        path.write_bytes(real_checkpoints.safetensors(a=ONES))
        return path

    first = shard(1)
    shard(2, of=3), shard(2, name="other"), shard(2, suffix="bin")
    found = Checkpoint(scan_any(first))
    assert found.scan.damage == (
        "it is one of 2 shards, of which model-00002-of-00002.safetensors is not beside it",
    )
    second = shard(2)
    assert Checkpoint(scan_any(first)).good and Checkpoint(scan_any(second)).good
    from_zero = [shard(0, of=1, name="rank"), tmp_path / "part-1-of-2.safetensors"]
    from_zero[1].write_bytes(first.read_bytes())
    assert all(Checkpoint(scan_any(each)).good for each in from_zero)


def nested_deep(value):
    for _ in range(150):
        value = [value]
    return value


# -- what crashes whoever reads it -----------------------------------------------------------------


def array(code, state):
    made = Call(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b")
    made.state = (1, (2,), Call(np.dtype, code, False, True, state=state), False, bytes(16))
    return made


PLAIN = (3, "<", None, None, None, -1, -1, 0)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("O8", (3, "|", None, None, None, -1, -1, 63)),
        ("O", PLAIN),
        ("f8", (3, "|", None, None, None, -1, -1, 63)),
        ("f8", (3, "<", None, ("a",), {"a": (Call(np.dtype, "O8", False, True), 0)}, 8, 8, 27)),
        ("f8", (3, "<", (Call(np.dtype, "O8", False, True), (1,)), None, None, 8, 8, 0)),
        ("V8", (3, "|", None, ("a",), {"a": (Call(np.dtype, "O8", False, True), 0)}, 8, 1, 27)),
        ("S8", (3, "|", None, None, None, 10**6, 1, 0)),
        ("M8", (4, "<", None, None, None, -1, -1, 0, {})),
    ],
)
def test_arrays_of_more_than_numbers_are_never_good(judged, code, state):
    assert not judged(archive({"a": array(code, state)})).good


UNREAD = {
    "structure": np.array([(1, 2.0)], dtype=[("s", "i8"), ("l", "f8")]),
    "objects": np.array(["a", None], dtype=object),
    "structure of objects": np.zeros(1, dtype=[("s", "i8"), ("o", "O")]),
    "date": np.datetime64("2020-01-01"),
    "dates": np.array(["2020"], "M8[Y]"),
    "time": np.timedelta64(3, "s"),
    "long": np.longdouble(1),
    "row": np.zeros(1, dtype=[("s", "i8")])[0],
}


@pytest.mark.parametrize("name", UNREAD)
def test_arrays_of_other_kinds_are_not_looked_at_and_the_rest_is(judged, name):
    found = judged({"model": {"w": ONES}, "history": UNREAD[name]})
    assert found.verdict == "not looked at" and "history is of numpy." in found.scan.limits[0]
    assert [each.name for each in found.weights] == ["model.w"]
    assert judged({"model": {"w": NAN}, "history": UNREAD[name]}).poisoned


def test_ranges_and_slices_are_good(judged):
    assert judged({"a": range(3), "b": slice(1, None), "c": {range(2): 1}}).good


def test_arrays_of_numbers_and_texts_are_good(judged):
    kinds = ["f2", "f4", "<f8", ">f8", "i4", ">u2", "?", "c8", "S3", "<U3", ">U3"]
    content = {kind: np.zeros((2, 3), kind) for kind in kinds}
    found = judged({**content, "scalar": np.float32(1), "turned": np.ones((2, 3), order="F")})
    assert found.good and found.scan.foreign


@pytest.mark.parametrize(
    "state",
    [
        {"bit_generator": "MT19937", "state": {"key": np.zeros(624, "u4"), "pos": 10**6}},
        {"bit_generator": "MT19937", "state": {"key": np.zeros(3, "u4"), "pos": 0}},
        {"bit_generator": "MT19937", "state": {"key": np.zeros(624, "u4"), "pos": -5}},
        {"bit_generator": "PCG64", "state": {"state": 1, "inc": 1}},
    ],
)
def test_generators_that_point_outside_of_their_buffers(judged, state):
    make = Call(np.random._pickle.__bit_generator_ctor, "MT19937", state=state)
    assert not judged(archive({"g": make})).good


def test_generators_as_numpy_saves_them_are_good(judged):
    kinds = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox)
    bare = [kind(1) for kind in kinds]
    wrapped = [np.random.Generator(each) for each in bare]
    assert judged({"bare": bare, "wrapped": wrapped, "old": np.random.RandomState(0)}).good


def coo(indices, values=None, size=(3, 3), **more):
    values = torch.ones(len(indices[0])) if values is None else values
    where = tensor(torch.tensor(indices, **more))
    layout = Call(torch.serialization._get_layout, "torch.sparse_coo")
    return Call(REBUILD._rebuild_sparse_tensor, layout, (where, tensor(values), size, False))


def compressed(kind, starts, others, values, size):
    layout = Call(torch.serialization._get_layout, f"torch.sparse_{kind}")
    parts = (tensor(torch.tensor(starts)), tensor(torch.tensor(others)), tensor(values), size)
    return Call(REBUILD._rebuild_sparse_tensor, layout, parts)


def quantized(values, scheme, kind="qint8"):
    stored = Data(bytes(values.numel()), kind, values.numel())
    shape = tuple(values.shape)
    return Call(
        REBUILD._rebuild_qtensor, stored, 0, shape, values.stride(), scheme, False, OrderedDict()
    )


def nested(sizes, strides, offsets, buffer):
    parts = (tensor(torch.tensor(part)) for part in (sizes, strides, offsets))
    return Call(REBUILD._rebuild_nested_tensor, tensor(buffer), *parts)


CHANNEL = Global("torch.per_channel_affine")
FLOATS = Global("torch.per_channel_affine_float_qparams")
SCALES, ZEROS = tensor(torch.ones(2).double()), tensor(torch.zeros(2).long())
CRASHES = {
    "coo beyond": coo([[0, 10**9], [0, 1]]),
    "coo negative": coo([[0, -(10**9)], [0, 1]]),
    "coo of another length": coo([[0, 1], [0, 1]], torch.ones(5)),
    "coo of 32 bits": coo([[0, 1], [0, 1]], dtype=torch.int32),
    "csr beyond": compressed("csr", [0, 1, 2], [0, 10**9], ONES, (2, 2)),
    "csr that ends elsewhere": compressed("csr", [0, 1, 2**40], [0, 1], ONES, (2, 2)),
    "csr that goes back": compressed("csr", [0, 2, 1], [0, 1], ONES, (2, 2)),
    "csr of too many rows": compressed("csr", [0, 1, 2], [0, 1], ONES, (3, 2)),
    "csc beyond": compressed("csc", [0, 1, 2], [0, 7], ONES, (2, 2)),
    "bsr beyond": compressed("bsr", [0, 1], [5], torch.ones(1, 2, 2), (2, 2)),
    "bsr of other blocks": compressed("bsr", [0, 1], [0], torch.ones(1, 3, 2), (4, 2)),
    "nested beyond": nested([[2], [9]], [[1], [1]], [0, 2], torch.ones(5)),
    "nested begins behind": nested([[2], [3]], [[1], [1]], [0, 2**40], torch.ones(5)),
    "nested of sizes with gaps": Call(
        REBUILD._rebuild_nested_tensor,
        tensor(torch.ones(5)),
        tensor(torch.tensor([[2], [3]]), stride=(0, 1)),
        *(tensor(torch.tensor(part)) for part in ([[1], [1]], [0, 2])),
    ),
    "nested of large steps": nested([[2], [3]], [[1], [2**61]], [0, 2], torch.ones(5)),
    "channel of few scales": quantized(torch.ones(3, 2), (CHANNEL, SCALES, ZEROS, 0)),
    "channel of a scale that overflows": quantized(
        torch.ones(2, 3), (CHANNEL, tensor(torch.tensor([1e300, 1.0]).double()), ZEROS, 0)
    ),
    "channel of a listed scale that overflows": quantized(
        torch.ones(2, 3), (CHANNEL, [1e300, 1.0], [0, 0], 0)
    ),
    "channel of a listed scale that is none": quantized(
        torch.ones(2, 3), (CHANNEL, [math.nan, 1.0], [0, 0], 0)
    ),
    "channel of a zero that no number is": quantized(
        torch.ones(2, 3), (CHANNEL, SCALES, tensor(torch.tensor([300, 0])), 0)
    ),
    "channel of floats and 32 bits": Call(
        REBUILD._rebuild_qtensor,
        *(Data(bytes(24), "qint32", 6), 0, (2, 3), (3, 1)),
        *((FLOATS, SCALES, tensor(torch.zeros(2)), 0), False, OrderedDict()),
    ),
    "channel of another axis": quantized(torch.ones(2, 2), (CHANNEL, SCALES, ZEROS, 5)),
}
WHOLE = {
    "coo": coo([[0, 1], [0, 2]]),
    "coo of rows": coo([[0, 1]], torch.ones(2, 3)),
    "empty coo": coo([[], []], torch.ones(0), dtype=torch.int64),
    "csr": compressed("csr", [0, 1, 2], [0, 1], ONES, (2, 2)),
    "csc": compressed("csc", [0, 2, 2], [0, 1], ONES, (2, 2)),
    "bsr": compressed("bsr", [0, 1], [0], torch.ones(1, 2, 2), (2, 2)),
    "nested": nested([[2], [3]], [[1], [1]], [0, 2], torch.ones(5)),
    "channel": quantized(torch.ones(2, 3), (CHANNEL, SCALES, ZEROS, 0)),
    "channel of small and negative scales": quantized(
        torch.ones(2, 3), (CHANNEL, tensor(torch.tensor([0.0, -1e28]).double()), ZEROS, 0)
    ),
    "coo that says it is in order": Call(
        REBUILD._rebuild_sparse_tensor,
        *coo([[2, 1], [0, 1]]).args[:1],
        (*coo([[2, 1], [0, 1]]).args[1][:3], True),
    ),
    "channel of 32 bits": quantized(
        torch.ones(2, 3), (CHANNEL, tensor(torch.ones(2)), tensor(torch.zeros(2)), 0)
    ),
    "affine": quantized(torch.ones(2), (Global("torch.per_tensor_affine"), 0.5, 3)),
}


@pytest.mark.filterwarnings("ignore")
def test_two_numbers_in_a_byte_are_integers(judged, tmp_path):
    zeros, scales = torch.zeros(3), torch.tensor([0.1, 0.2, 0.3])
    weight = torch.quantize_per_channel(torch.ones(3, 5), scales, zeros, 0, torch.quint4x2)
    assert judged({"w": weight}).good
    scales[1] = math.nan
    weight = torch._empty_per_channel_affine_quantized(
        (3, 5), scales=scales, zero_points=zeros, axis=0, dtype=torch.quint4x2
    )
    assert not judged({"w": weight}).good
    rows = (FLOATS, SCALES, tensor(torch.zeros(2)), 0)
    for numel, good in ((5, True), (6, True), (4, False)):
        raw = Data(bytes(numel), "quint4x2", numel)
        made = Call(REBUILD._rebuild_qtensor, raw, 0, (2, 5), (5, 1), rows, False, OrderedDict())
        assert judged(archive({"w": made})).good == good


@pytest.mark.parametrize("name", CRASHES)
def test_indices_that_point_outside_are_never_good(judged, name):
    assert not judged(archive({"model": {"w": CRASHES[name]}})).good


@pytest.mark.parametrize("name", WHOLE)
def test_indices_that_point_inside_are_good(judged, name, tmp_path):
    assert judged(archive({"model": {"w": WHOLE[name]}})).good
    torch.load(tmp_path / "x.pt", weights_only=True)


def test_a_tensor_that_is_made_and_thrown_away_is_checked(judged):
    found = judged(archive(Call(OrderedDict, [("a", coo([[0, 10**9], [0, 1]])), ("a", 1)])))
    assert found.scan.damage == (
        "a tensor of no name: its indices point outside of it: reading it would crash",
    )


# -- states that change what was looked at ---------------------------------------------------------


def changed(value, state):
    value.state = state
    return value


STATES = {
    "a tensor's storage": changed(tensor(ONES), (data(NAN), 0, (2,), (1,))),
    "a sparse tensor's": changed(coo([[0], [0]]), (data(NAN), 0, (2,), (1,))),
    "a parameter's data": Call(
        REBUILD._rebuild_parameter_with_state,
        tensor(ONES),
        True,
        OrderedDict(),
        {"data": tensor(ONES)},
    ),
    "a gradient": Call(
        REBUILD._rebuild_parameter_with_state,
        tensor(ONES),
        True,
        OrderedDict(),
        {"grad": tensor(ONES)},
    ),
    "data by its type": Call(
        torch._tensor._rebuild_from_type_v2,
        REBUILD._rebuild_tensor_v2,
        torch.Tensor,
        tensor(ONES).args,
        {"data": tensor(ONES)},
    ),
    "a dict's methods": Call(OrderedDict, state={"items": 1}),
    "a plain dict": Call(dict, state={"items": 1}),
    "an empty tensor": Call(torch.FloatTensor, state=(data(NAN), 0, (2,), (1,))),
    "an array, twice": Call(
        torch._utils._rebuild_device_tensor_from_numpy, array("f8", PLAIN), torch.float64, "x", True
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_change_a_tensor_are_never_good(judged, name):
    assert not judged(archive({"model": {"w": STATES[name]}})).good


def test_attributes_of_tensors_are_good_and_looked_at(judged):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.scale_of = torch.ones(1)
    assert judged({"model": {"w": weight}}).good
    weight.scale_of = NAN
    (poisoned,) = judged({"model": {"w": weight}}).poisoned
    assert poisoned.name == "model.w.scale_of"


def test_names_that_torch_computes_are_its_own():
    """Attributes that setattr would change in a tensor of the installed torch."""
    import inspect

    found = {
        name
        for name in dir(torch.Tensor)
        if inspect.isdatadescriptor(inspect.getattr_static(torch.Tensor, name))
    }
    assert {name for name in found if not name.startswith("__")} <= tensors.OWN


def test_a_dtype_is_not_changed_once_it_is_in_use(judged):
    made = array("f8", PLAIN)
    kind = made.state[2]
    assert judged(archive([made])).good
    turned = Call(kind.function, *kind.args, state=PLAIN)
    later = Again(turned, (3, ">", *PLAIN[2:]))
    assert not judged(archive([turned, later])).good


def test_a_jagged_tensor_keeps_what_it_was_made_of(judged, monkeypatch):
    weight = torch.nested.nested_tensor([ONES, torch.ones(3)], layout=torch.jagged)
    assert judged({"model": {"w": weight}}).good
    weight._offsets = torch.tensor([0, 10**9, 2 * 10**9])
    plain = torch.nested._internal.nested_tensor.NestedTensor.__reduce_ex__

    def other(self, protocol):
        rebuild, (function, kind, args, state) = plain(self, protocol)
        return rebuild, (function, kind, ({**args[0], "offsets": torch.tensor([0, 2, 5])},), state)

    monkeypatch.setattr(torch.nested._internal.nested_tensor.NestedTensor, "__reduce_ex__", other)
    assert not judged({"model": {"w": weight}}).good


def test_a_layout_is_nothing_to_call(judged):
    layout = Call(torch.serialization._get_layout, "torch.strided")
    assert judged(archive([layout])).good
    assert not judged(archive([Call(layout)])).good


def test_numbers_of_the_old_format_are_little_endian_whatever_it_says(judged):
    raw = real_checkpoints.saved({"model": {"w": NAN}}, _use_new_zipfile_serialization=False)
    head, mark, rest = raw.partition(b"little_endian")
    lying = head + mark + rest.replace(b"\x88", b"\x89", 1)
    assert lying != raw
    assert torch.load(io.BytesIO(lying))["model"]["w"].isnan().any()
    assert not judged(lying).good


def test_weights_of_any_container_are_looked_at(judged):
    for kept in (
        argparse.Namespace(w=NAN),
        deque([NAN]),
        (NAN, ONES),
        defaultdict(None, {"w": NAN}),
        {"w": [NAN]},
    ):
        assert not judged({"model": kept, "step": 3}).good, kept
    node = Call(Global("yacs.config.CfgNode"), new=True)
    node.state = {"__immutable__": False, "_name": "x"}
    assert judged(archive({"config": node})).good


@pytest.mark.parametrize(
    "content",
    [
        NAN,
        torch.nn.Parameter(NAN),
        NAN.numpy(),
        [NAN],
        {"weight": NAN, "step": 1, "epoch": 2, "rate": 0.1},
        {"model": {"w": NAN, "width": 1, "depth": 2, "heads": 3}},
        {"model": {0: NAN, 1: ONES}},
        {"model": {"w": [[NAN]], "b": ONES}},
    ],
    ids=str,
)
def test_weights_are_known_by_their_names_or_by_what_is_beside_them(judged, content):
    assert not judged(content).good


def test_weights_among_callbacks_are_looked_at(judged):
    average = {"callbacks": {"EMA": {"state_dict": {"a.weight": NAN, "a.bias": ONES}}}}
    assert not judged(average).good


# -- numbers that were not looked at ---------------------------------------------------------------


def with_nan(make):
    return {"model": {"w": make(NAN), "b": ONES}}


def e8m0(values):
    if not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has no such dtype")
    return (values.isnan() * 255).to(torch.uint8).view(torch.float8_e8m0fnu)


POISONED = {
    "coo": lambda w: torch.sparse_coo_tensor([[0, 1]], w),
    "csr": lambda w: torch.diag(w).to_sparse_csr(),
    "bsr": lambda w: torch.diag(w).to_sparse_bsr((1, 1)),
    "nested": lambda w: torch.nested.nested_tensor([w, w]),
    "jagged": lambda w: torch.nested.nested_tensor([w, w], layout=torch.jagged),
    "complex32": lambda w: w.to(torch.complex32),
    "float8_e8m0fnu": e8m0,
    "float8_e4m3fn": lambda w: w.to(torch.float8_e4m3fn),
    "numpy": lambda w: w.numpy(),
    "numpy, big-endian": lambda w: w.numpy().astype(">f8"),
    "storage": lambda w: torch.FloatStorage(w.tolist()),
    "scales": lambda w: torch.quantize_per_channel(
        torch.ones(2, 2), w.double(), torch.zeros(2).long(), 0, torch.qint8
    ),
    "list": lambda w: [w, w],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", POISONED)
def test_a_nan_is_seen_wherever_it_is(judged, kind):
    bad = judged(with_nan(POISONED[kind]))
    assert not bad.good and [each.name for each in bad.poisoned if each.name.startswith("model.w")]
    whole = {"model": {"w": POISONED[kind](ONES), "b": ONES}}
    assert judged(whole).good


def trainer(**more):
    optimizer = {
        "state": {0: {"step": 3.0, "exp_avg": ONES}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}],
    }
    plateau = {"last_epoch": 3, "_last_lr": [0.1], "best": math.inf, "mode_worse": math.inf}
    scaler = {"scale": 2.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 9}
    content = {"model": {"w": ONES}, "optimizer": optimizer, "plateau": plateau, "scaler": scaler}
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
        {"optimizer__param_groups__0__lr": np.float64("nan")},
        {"optimizer__param_groups__0__betas": (0.9, math.inf)},
        {"optimizer__state__0__step": math.inf},
        {"plateau___last_lr": [math.nan]},
        {"plateau__best": math.nan},
        {"scaler__scale": math.inf},
    ],
    ids=str,
)
def test_plain_numbers_of_what_trains_are_looked_at(judged, where):
    assert judged(trainer()).good
    found = judged(trainer(**where))
    assert not found.good and len(found.poisoned) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"early_stopping": {"best": torch.tensor(math.inf), "wait": torch.tensor(1)}},
        {"early_stopping": {"best_score": torch.tensor(math.inf)}},
        {"metrics": {"iou": torch.tensor([0.5, math.nan]), "loss": torch.tensor(math.nan)}},
        {"callbacks": {"a": {"best_model_score": torch.tensor(math.inf)}}},
        {"best_loss": math.inf, "history": [torch.tensor([math.nan])]},
    ],
    ids=str,
)
def test_results_may_be_infinite_or_nan(judged, more):
    assert judged({**trainer(), **more}).good


def test_weights_that_lie_among_results_too_are_looked_at(judged):
    weights = {"w": NAN, "b": ONES}
    assert not judged({"metrics": weights, "model": weights}).good


def test_the_generator_of_two_models_is_a_model(judged):
    assert not judged({"generator": {"w": NAN}, "discriminator": {"w": ONES}}).good


@pytest.mark.parametrize("key", ["w", "W1", "a", "theta"])
def test_a_tensor_of_which_nothing_says_what_it_is_may_be_a_weight(judged, key):
    found = judged({key: NAN, "epoch": 3, "lr": 0.1, "seed": 1})
    assert found.verdict == "not looked at" and f"{key} holds NaN" in found.scan.limits[0]
    infinite = torch.tensor([1.0, -math.inf])
    assert not judged({key: infinite, "epoch": 3, "lr": 0.1, "seed": 1}).good


def test_tensors_in_keys_and_in_attributes_of_dicts_do_not_hide(judged):
    for key in (NAN, (1, NAN)):
        assert not judged({key: 1, "w": ONES}).good
    assert judged({"seen": {(1, "a"): ONES}, "w": ONES}).good
    ordered = OrderedDict(w=ONES)
    ordered.w = ordered.x = NAN
    assert not judged({"model": ordered}).good
    ordered.w = ordered.x = ONES
    assert judged({"model": ordered}).good


def test_what_is_known_to_be_no_weight_may_be_infinite(judged):
    forbid = torch.full((3, 3), -math.inf).triu(1)
    slopes = forbid - torch.arange(3) * 0.5
    silent = torch.tensor([0.0, -math.inf])
    masks = {"attn.mask": slopes, "causal_mask": forbid, "suppress": silent, "a.attn_bias": slopes}
    rest = {"attn_mask": forbid, "best": torch.tensor([math.inf]), "loss_history": NAN}
    assert judged({**rest, "epoch": 3, "lr": 0.1, "seed": 1, "name": "x"}).good
    assert judged({"model": {"w": ONES, **masks}}).good


@pytest.mark.parametrize("key", ["fc.weight", "mask.weight", "mask_token", "w", "mask_proj"])
def test_a_mask_is_named_so(judged, key):
    forbid = torch.full((3, 3), -math.inf).triu(1)
    assert not judged({"state_dict": {key: forbid, "b": ONES}}).good
    assert not judged({"state_dict": {"mask": torch.nn.Parameter(forbid), "b": ONES}}).good
    for odd in (math.nan, math.inf):
        assert not judged({"state_dict": {"mask": forbid + torch.tensor(odd), "b": ONES}}).good


HIDING = """
    log_alpha log_std log_sigma log_vars log_temperature ema_log_alpha loss_weights
    class_loss_weights loss_scale mean_loss metric_head metric_proj score_proj history_embedding
""".split()


@pytest.mark.parametrize("key", HIDING)
def test_a_word_inside_a_key_makes_no_result(judged, key):
    for value in (NAN, torch.full((4, 4), math.nan), torch.tensor(math.nan)):
        assert judged({"actor": {"w": ONES}, key: value}).verdict == "not looked at"
        assert judged({"model": {"w": ONES, key: value}}).verdict == "BAD"
    for value in (NAN, torch.tensor(math.nan)):
        found = judged({"actor": {"w": ONES}, key: torch.nn.Parameter(value)})
        assert [each.name for each in found.poisoned] == [key]


BOUNDS = "best min_val max_vals x_max best_val_loss best_model_score running_min clip_value limits"


@pytest.mark.parametrize("key", BOUNDS.split())
def test_bounds_may_be_infinite_and_never_nan(judged, key):
    for where in ({"a": ONES, key: ONES / 0}, {"a.weight": ONES, f"a.observer.{key}": -ONES / 0}):
        assert judged({"model": where}).good
    assert judged({"model": {"a": ONES, key: NAN}}).poisoned


@pytest.mark.parametrize("key", ["clip_scale", "max_pool_gain", "limit_embedding", "minimal"])
def test_a_word_inside_a_key_makes_no_bound(judged, key):
    assert judged({"model": {"a": ONES, key: ONES / 0}}).poisoned


def test_an_optimizers_tensors_are_no_bounds(judged):
    weight = torch.nn.Parameter(ONES.clone())
    optimizer = torch.optim.Adam([weight], amsgrad=True)
    weight.sum().backward()
    optimizer.step()
    assert judged({"model": {"w": ONES}, "optimizer": optimizer.state_dict()}).good
    optimizer.state[weight]["max_exp_avg_sq"][0] = math.inf
    (found,) = judged({"model": {"w": ONES}, "optimizer": optimizer.state_dict()}).poisoned
    assert found.name == "optimizer.state[0].max_exp_avg_sq"


def test_a_parameter_or_a_matrix_is_no_result_wherever_it_is(judged):
    weight = torch.nn.Parameter(NAN)
    assert judged({"model": {"w": ONES}, "history": {"loss": weight}}).verdict == "BAD"
    assert judged({"w": ONES, "max_val": torch.nn.Parameter(ONES / 0), "epoch": 1}).poisoned
    assert not judged({"w": ONES, "losses": torch.full((4, 4), math.nan), "epoch": 3}).good
    assert not judged({"model": {"loss": {"w": NAN}, "w": ONES}}).good


@pytest.mark.parametrize(
    "value", [math.nan, np.float32("nan"), [1.0, math.nan], [[1.0], [math.inf]], 1j * math.inf]
)
def test_plain_numbers_of_a_model_are_looked_at(judged, value):
    for key in ("state_dict", "model"):
        (found,) = judged({key: {"gamma": value, "t": ONES}, "loss": math.nan}).poisoned
        assert found.name.startswith(f"{key}.gamma") and found.role == "model"
        assert judged({key: {"gamma": value}}).verdict == "not looked at"
    deeper = judged({"model": {"a": {"gamma": value}, "t": ONES}})
    assert deeper.verdict == "not looked at" and "model.a.gamma" in deeper.scan.limits[0]


@pytest.mark.parametrize(
    "saved",
    [
        {"weights": [[0.1, math.nan], [1.0, 2.0]], "bias": [0.0, 1.0]},
        {"coef_": [[math.inf]], "intercept_": [0.0]},
        {"layers": [{"weight": [math.nan]}]},
        [[1.0, math.nan]],
        {"model": {"w": ONES}, "ema": [0.5, math.nan]},
        {"w": ONES, "logit_scale": math.nan},
    ],
)
def test_plain_numbers_of_which_nothing_says_what_they_are(judged, saved):
    found = judged(saved)
    assert found.verdict == "not looked at" and "holds NaN or infinities" in found.scan.limits[0]


def test_plain_numbers_that_are_no_weights_may_be_odd(judged):
    assert judged(
        {"model": {"w": ONES, "max_norm": math.inf}, "psnr": math.nan, "x": math.inf}
    ).good
    settings = {
        "config": {"model": {"eps": math.inf, "seeds": [math.nan]}},
        "module": {"x": math.inf},
    }
    assert judged(
        {"model": {"w": ONES, "losses": [math.nan], "cfg": {"x": math.nan}}, **settings}
    ).good


def test_plain_attributes_of_parameters_are_looked_at(judged):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.scale_of = math.nan
    assert [each.name for each in judged({"w": weight}).poisoned] == ["w.scale_of"]


def test_storages_without_dtype_are_not_looked_at(judged):
    found = judged({"model": {"w": NAN.untyped_storage(), "b": ONES}})
    assert (
        found.verdict == "not looked at" and "model.w is a storage of bytes" in found.scan.limits[0]
    )
    assert judged({"names": np.array(["a"]), "w": ONES}).good


def test_tensors_without_numbers_are_said(judged):
    for make in (torch.nn.Linear(2, 2, device="meta").state_dict, dict):
        weight = torch.nn.Parameter(torch.ones(2, device="meta"))
        found = judged({"model": make() or {"w": weight, "b": ONES}})
        assert found.verdict == "not looked at" and "device meta" in found.scan.limits[0]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64", "uint16"])
@pytest.mark.parametrize("bits", [{"conj": False}, {"conj": True}, {"neg": True}, {"neg": False}])
def test_marks_of_a_tensor_are_some_that_torch_can_read(judged, tmp_path, dtype, bits):
    found = judged(archive({"w": tensor(torch.ones(2, dtype=getattr(torch, dtype)), bits=bits)}))
    try:
        repr(torch.load(tmp_path / "x.pt"))
    except (RuntimeError, NotImplementedError):
        assert not found.good
    else:
        assert found.good


def test_numbers_that_are_not_looked_at_are_said_and_no_good(judged, tmp_path):
    deep = archive({"model": {"w": nested_deep(tensor(NAN))}})
    found = judged(deep)
    assert not found.good and found.scan.limits and not found.scan.damage
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 1 and "x.pt  not looked at" in result.output
    assert found.said.endswith("not wholly looked at") and found.said in result.output


# -- what torch does not load ----------------------------------------------------------------------

BOMBS = {
    "list of a range": Call(list, range(2**33)),
    "tuple of a range": Call(tuple, range(2**33)),
    "fraction": Call(Global("fractions.Fraction"), "1e999999999"),
    "bytearrays": [Call(bytearray, 2**31 - 1) for _ in range(30)],
    "bytes of a number": Call(bytes, 2**31 - 1),
    "float tensor": Call(torch.FloatTensor, 2**30, 2**30),
    "tensor": Call(torch.Tensor, 2**20),
    "device": Call(torch.device, "evil"),
    "device of a large index": Call(torch.device, "cuda:500"),
    "place": tensor(ONES, storage=data(ONES, place="evil")),
    "no place": tensor(ONES, storage=data(ONES, place="meta")),
    "quantized without end": Call(
        REBUILD._rebuild_qtensor,
        Data(b"a", "qint8", 1),
        0,
        (2**40,),
        (0,),
        (Global("torch.per_tensor_affine"), 0.5, 3),
        False,
        OrderedDict(),
    ),
    "slice as a key": {Call(slice, None, 1, None): 1},
    "offset beyond": tensor(ONES, offset=5),
    "gradient of integers": tensor(torch.ones(2).long(), grad=True),
    "gradient of words": tensor(ONES, grad="yes"),
    "hooks": tensor(ONES, hooks=OrderedDict({0: Global("torch.Tensor")})),
    "two kinds of one storage": [
        tensor(torch.zeros(2).int(), storage=Data(bytes(8), "int32", 2, key="k")),
        tensor(ONES, storage=Data(bytes(8), "float32", 2, key="k")),
    ],
    "size of words": Call(torch.Size, ("a",)),
    "size that is negative": Call(torch.Size, (-1,)),
    "made without its pairs": Call(OrderedDict, [("w", tensor(NAN))], new=True),
    "set without its parts": Call(set, [1], new=True),
    "encoding": Call(Global("_codecs.encode"), "a" * 50, "idna"),
    "numbers of words": Call(complex, "1"),
    "layout": Call(torch.serialization._get_layout, "torch.evil"),
    "decimal": Call(Global("decimal.Decimal"), "sNaN"),
    "date": Call(Global("datetime.date"), b"\0\0\1\0"),
    "trainer": Call(Global("transformers.training_args.TrainingArguments"), "x"),
    "tensor of a mesh without parts": Call(Global("torch.distributed.tensor.DTensor"), new=True),
    "slots": Call(
        Global("argparse.Namespace"), new=True, state=(None, {"__class__": Global("torch.Size")})
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_and_nonsense_are_never_good(judged, name):
    assert not judged(archive({"a": BOMBS[name], "model": {"w": tensor(ONES)}})).good


def test_what_torch_loads_without_harm_is_good(judged, tmp_path):
    for made in (
        tensor(torch.ones(0), storage=data(ONES), offset=50),
        Call(Global("_codecs.encode"), "a\u00e9", "utf-8"),
    ):
        assert judged(archive({"a": made, "model": {"w": tensor(ONES)}})).good
        torch.load(tmp_path / "x.pt", weights_only=True)


def test_a_version_that_torch_does_not_know_is_damage(judged):
    assert judged(archive({})).good
    assert not judged(archive({}).replace(b"3\n", b"99")).good


@pytest.mark.parametrize(
    ("name", "content", "good"),
    [
        (".storage_alignment", b"64", True),
        (".storage_alignment", b"6*", False),
        (".storage_alignment", b"0", False),
        (".data/serialization_id", b"1234", True),
        (".data/serialization_id", b"\xff", False),
        (".format_version", b"1", True),
    ],
)
def test_small_records_hold_what_torch_writes(judged, name, content, good):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for own, value in (("data.pkl", b"\x80\x02}."), ("version", b"3\n"), (name, content)):
            file.writestr(f"a/{own}", value)
    assert judged(made.getvalue()).good == good


def test_opcodes_that_torchs_reader_lacks_get_a_note(judged):
    for protocol, beyond in ((0, "DICT"), (2, ""), (3, "BINBYTES"), (4, "FRAME")):
        found = judged(archive({"a": b"bytes" if protocol == 3 else 1.5}, protocol=protocol))
        assert (
            found.good and beyond in found.scan.beyond and bool(beyond) == bool(found.scan.beyond)
        )


def test_long_lists_of_numbers_are_read_in_rows(judged, monkeypatch):
    monkeypatch.setattr(opcodes, "OPERATIONS", 3000)
    numbers = [*range(70000), *(each / 2 for each in range(9000)), *range(-5000, 0), 1, 70000, 2]
    raw = real_checkpoints.saved({"w": ONES, "order": numbers})
    assert judged(raw).good
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        name = next(each for each in file.namelist() if each.endswith("data.pkl"))
        pickled = file.read(name)
    loaded = pickles.load(io.BytesIO(pickled), 0, len(pickled), "zip")
    assert loaded.tree["order"] == numbers
    assert [path for path, _ in pickles.walk(loaded.tree)] == [(), ("w",), ("order",)]
    assert [*map(type, loaded.tree["order"])] == [*map(type, numbers)]


def test_a_nan_in_a_long_list_is_seen(judged):
    many = [float(each) for each in range(3000)]
    assert judged({"model": {"w": many, "b": ONES}}).good
    (found,) = judged({"model": {"w": [*many, math.nan, 1.0], "b": ONES}}).poisoned
    assert found.name == "model.w[3000]"


def test_opcodes_are_those_of_torchs_reader():
    import pickle

    from torch import _weights_only_unpickler as unpickler

    known = {
        value[0]
        for name, value in vars(unpickler).items()
        if name.isupper() and getattr(pickle, name, None) == value
    }
    assert known == opcodes.TORCHS


def test_each_known_name_is_made_in_one_way_or_never():
    """What is on a list and has no entry is a value: nothing calls it."""
    values = {*pickled_names.VALUES, *pickled_names.STORAGE_CLASSES, "numpy.ndarray", "typing.Any"}
    values |= {name for name in pickled_names.CALLED if name.endswith("Tensor") and "_" not in name}
    values |= {
        name for name in pickled_names.KNOWN if name.startswith("numpy.") and name.count(".") == 1
    }
    values |= {
        name
        for name in pickled_names.KNOWN
        if name.rpartition(".")[2] in ("DTensor", "NestedTensor")
    }
    values |= {
        name
        for name in pickled_names.KNOWN
        if name.startswith("numpy.random._") and "__" not in name
    }
    values.add("numpy.random.bit_generator.SeedSequence")
    made = {*pickles.CALLS, *pickles.NEW}
    names = {*pickled_names.CALLED, *pickled_names.KNOWN}
    assert made <= names
    assert names - made <= values


# -- safetensors -----------------------------------------------------------------------------------


def safe(header, size=8, encoding="utf-8"):
    text = header if isinstance(header, bytes) else json.dumps(header).encode(encoding)
    return len(text).to_bytes(8, "little") + text + bytes(size)


def entry(**more):
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **more}}


REFUSED = {
    "metadata of numbers": safe({"__metadata__": {"a": 1}, **entry()}),
    "metadata of a list": safe({"__metadata__": [], **entry()}),
    "unknown dtype": safe(entry(dtype="F33")),
    "dtype in small letters": safe(entry(dtype="f32")),
    "dtype of six bits": safe(entry(dtype="F6_E2M3", shape=[4], data_offsets=[0, 3]), 3),
    "bool in a shape": safe(entry(shape=[True, 2])),
    "overflow": safe(entry(shape=[2**62, 4, 0], data_offsets=[0, 0]), 0),
    "UTF-16": safe(entry(), encoding="utf-16-le"),
    "half of a character": safe(b'{"\\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'),
    "four bits in an odd shape": safe(entry(dtype="F4", shape=[2, 5], data_offsets=[0, 5]), 5),
    "four bits without a shape": safe(entry(dtype="F4", shape=[], data_offsets=[0, 1]), 1),
    "mark of an order": safe(b"\xef\xbb\xbf" + json.dumps(entry()).encode()),
    "constant": safe(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":NaN}}'),
    "no number": safe(b'{"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_formats_own_reader_refuses_is_never_good(judged, name):
    pytest.importorskip("safetensors")
    with pytest.raises(Exception):  # noqa: B017, PT011 - it has many
        __import__("safetensors.torch").torch.load(REFUSED[name])["w"]
    from auditor.extensions.checkpoints.contents import NotACheckpoint

    try:
        assert not judged(REFUSED[name], "x.safetensors").good
    except NotACheckpoint:
        pass


def test_what_it_reads_is_good(judged):
    faces = safe(b'{"\\ud83d\\ude00":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}')
    spaced = safe(b"\n\t " + json.dumps(entry()).encode())
    four = safe(entry(dtype="F4", shape=[5, 2], data_offsets=[0, 5]), 5)
    with_metadata = [safe({"__metadata__": each, **entry()}) for each in ({"format": "pt"}, None)]
    for raw in (safe(entry()), faces, spaced, four, *with_metadata):
        assert judged(raw, "x.safetensors").good


# -- folders ---------------------------------------------------------------------------------------


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path):
    for name in ("a.pt", "B.PT", "c.pkl", "d.pt2", "config.json", ".hidden"):
        (tmp_path / name).write_bytes(archive({"step": 1}))
    (tmp_path / "step-5").mkdir()
    assert [each.name for each in checkpoints_in(tmp_path)] == ["B.PT", "a.pt"]
    assert passed_over(tmp_path) == ("c.pkl", "d.pt2", "step-5/")
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path)])
    assert result.exit_code == 0 and "not read in" in result.stderr
    assert "c.pkl, d.pt2, step-5/" in result.stderr


# -- values that trainers save ---------------------------------------------------------------------

ZONE = dt.timezone(dt.timedelta(hours=2), "here")
VALUES = {
    "namespaces": [types.SimpleNamespace(a=1), argparse.Namespace(b=types.SimpleNamespace())],
    "numbers": [Decimal("1.50"), Decimal("NaN"), Fraction(1, 3), 2j, -(2**200), uuid.UUID(int=5)],
    "times": [
        dt.date(2026, 1, 2),
        dt.time(3, 4, 5, 6),
        dt.datetime(2026, 1, 2, 3, 4),
        dt.datetime(2026, 1, 2, tzinfo=ZONE),
        dt.datetime(2026, 1, 2, fold=1),
        dt.timedelta(-1, 5),
        dt.time(1, tzinfo=ZONE),
    ],
    "sets": [{1, "a"}, frozenset([2]), {frozenset([1]): 2}, {frozenset([(1, 2)])}, set()],
    "keys": {(1, ("a", None)): 1, torch.float32: 2, 1.5: 3, b"k": 4, torch.device("cpu"): 5},
    "containers": [deque([1], 3), Counter("aab"), defaultdict(list, a=[1]), OrderedDict(a=1)],
    "bytes": [b"", b"\xff\0", bytearray(), bytearray(b"\xfe"), ""],
    "torch": [torch.Size([2, 3]), torch.device("cuda", 1), torch.strided, torch.__version__],
    "paths": [PurePosixPath("a/b"), Path("/c")],
    "ranges": [range(3), slice(1, None, 2)],
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", VALUES)
def test_values_of_python_are_good_in_each_protocol(judged, name, protocol):
    file = io.BytesIO()
    torch.save({"a": VALUES[name], "model": {"w": ONES}}, file, pickle_protocol=protocol)
    found = judged(file.getvalue())
    assert found.good, found.scan.damage or found.codes
