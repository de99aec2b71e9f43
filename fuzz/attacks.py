"""``python -m fuzz.attacks``: checkpoints of every kind, most of them wrong in one place, and what
torch itself makes of them. None may be called good that it refuses, dies of or finds a NaN in.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import math
import random
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints import pickles
from auditor.extensions.checkpoints.contents import NotACheckpoint
from auditor.extensions.checkpoints.scan import scan
from fuzz import mutate, oracle, real_checkpoints
from fuzz.crafted import REBUILD, Call, Data, Global, archive, bytes_of, data, tensor

ODD = (
    *(0, 1, 2, 3, 5, 7, 64, 2**31, 2**33, 2**62, 2**63 - 1, 2**63, 2**70, -1, -3, -(2**31)),
    *(0.0, 1.5, math.nan, math.inf, 1e300, True, False, None),
)
"""Numbers in the place of others."""

WORDS = ("", "a", "cpu", "cuda:0", "cuda:999", "latin1", "idna", "1/3", "1e99", "f8", "O8", "evil")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool")
NEW = ("complex64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "uint16")
MORE = tuple(name for name in NEW if hasattr(torch, name))


def _random(chance: random.Random, *shape: int) -> torch.Tensor:
    values = [chance.randrange(4) / 2 for _ in range(math.prod(shape))]
    return torch.tensor(values).reshape(shape)


def _poisoned(chance: random.Random, values: torch.Tensor) -> torch.Tensor:
    if values.dtype.is_floating_point and values.numel() and chance.random() < 0.3:
        place = chance.randrange(values.numel())
        values.view(-1)[place] = chance.choice((math.nan, math.inf, -math.inf))
    return values


def _hit(chance: random.Random, value: Any, left: list[int]) -> Any:
    """The same with numbers, words and lengths changed: each with the odds of ``left`` in the
    number of its places.
    """
    if left[0] > 0 and chance.random() < 0.12:
        left[0] -= 1
        return _odd(chance, value)
    if isinstance(value, Call):
        made = copy.copy(value)
        made.args = tuple(_hit(chance, each, left) for each in value.args)
        made.state = _hit(chance, value.state, left) if value.state is not None else None
        return made
    if isinstance(value, Data):
        made = copy.copy(value)
        made.said = _hit(chance, value.said, left)
        return made
    if type(value) in (tuple, list):
        return type(value)(_hit(chance, each, left) for each in value)
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _hit(chance, each, left)) for key, each in value.items())
    return value


def _odd(chance: random.Random, value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        near = (value + 1, value - 1, value * 2, -value)
        return chance.choice((*near, *ODD))
    if isinstance(value, (tuple, list)) and chance.random() < 0.7:
        shorter, longer = value[:-1], (*value, chance.choice(ODD[:8]))
        return type(value)(chance.choice((shorter, longer, (*value, *value), value[::-1])))
    if isinstance(value, torch.dtype):
        return getattr(torch, chance.choice((*DTYPES, *MORE, "qint8")))
    if isinstance(value, bytes):
        return chance.choice((value[:-1], value + b"\0", value * 2))
    if isinstance(value, str):
        return chance.choice(WORDS)
    return chance.choice((*ODD, "a", b"", (), [], {}, Global("torch.float32"), Call(OrderedDict)))


# -- one of each kind ------------------------------------------------------------------------------


def _strided(chance: random.Random) -> Any:
    dtype = getattr(torch, chance.choice((*DTYPES, *MORE)))
    shape = tuple(chance.randrange(4) for _ in range(chance.randrange(4)))
    values = _random(chance, *shape)
    if dtype.is_floating_point or dtype.is_complex:
        values = _poisoned(chance, values)
    more: dict[str, Any] = {"grad": dtype.is_floating_point and chance.random() < 0.3}
    if chance.random() < 0.2:
        more["bits"] = {chance.choice(("conj", "neg")): chance.choice((True, False))}
    return tensor(values.to(dtype), **more)


def _integers(values: Any) -> Any:
    return tensor(torch.as_tensor(values, dtype=torch.int64))


def _sparse(chance: random.Random) -> Any:
    values = _poisoned(chance, _random(chance, 4, 4))
    layout = chance.choice(("coo", "csr", "csc", "bsr", "bsc"))
    kind = Call(torch.serialization._get_layout, f"torch.sparse_{layout}")
    if layout == "coo":
        made = values.to_sparse()
        parts: Any = (made.indices().tolist(), tensor(made.values()), (4, 4), True)
        if chance.random() < 0.5:
            where = _hit(chance, parts[0], [2])
            try:
                return Call(REBUILD._rebuild_sparse_tensor, kind, (_integers(where), *parts[1:]))
            except (TypeError, ValueError, RuntimeError):
                pass
        return Call(REBUILD._rebuild_sparse_tensor, kind, (_integers(parts[0]), *parts[1:]))
    words = ((2, 2),) if layout.startswith("b") else ()
    made = getattr(values, f"to_sparse_{layout}")(*words)
    by_row = layout.endswith("sr")
    starts = (made.crow_indices() if by_row else made.ccol_indices()).tolist()
    others = (made.col_indices() if by_row else made.row_indices()).tolist()
    if chance.random() < 0.5 and others:
        chosen = chance.choice((starts, others))
        chosen[chance.randrange(len(chosen))] = chance.choice((-1, 3, 4, 5, 2**40, -(2**40)))
    parts = (_integers(starts), _integers(others), tensor(made.values()), (4, 4))
    return Call(REBUILD._rebuild_sparse_tensor, kind, parts)


def _nested(chance: random.Random) -> Any:
    lengths = [chance.randrange(1, 4) for _ in range(3)]
    if chance.random() < 0.3:
        kept = [_poisoned(chance, _random(chance, each)) for each in lengths]
        return torch.nested.nested_tensor(kept, layout=torch.jagged)
    sizes, strides, offsets = [[each] for each in lengths], [[1]] * 3, [0, *lengths[:2]]
    offsets[2] += lengths[0]
    buffer = tensor(_poisoned(chance, _random(chance, sum(lengths))))
    if chance.random() < 0.5:
        chosen = chance.choice((sizes, strides))
        chosen[chance.randrange(3)] = [chance.choice((-1, 0, 5, 2**40, 2**62))]
    if chance.random() < 0.3:
        offsets[chance.randrange(3)] = chance.choice((-1, 5, 2**40, 2**62))
    parts = map(_integers, (sizes, strides, offsets))
    return Call(REBUILD._rebuild_nested_tensor, buffer, *parts)


def _quantized(chance: random.Random) -> Any:
    kind = chance.choice(("qint8", "quint8", "qint32", "quint4x2"))
    held = {"qint32": 24, "quint4x2": chance.choice((3, 4, 6))}.get(kind, 6)
    stored = Data(bytes(held), kind, held if kind == "quint4x2" else 6)
    scheme: Any = (Global("torch.per_tensor_affine"), chance.choice((0.5, 1e-9, math.nan)), 3)
    if chance.random() < 0.5:
        scales = _poisoned(chance, torch.ones(2).double())
        scales[0] *= chance.choice((1.0, 1.0, 0.0, -1.0, 1e-300, 1e37, 1e300))
        name = Global("torch.per_channel_affine")
        zeros = _integers([0, chance.choice((1, 1, -1, 15, 200, 2**40))])
        if kind == "quint4x2" or chance.random() < 0.2:
            name, zeros = Global("torch.per_channel_affine_float_qparams"), tensor(torch.ones(2))
        scheme = (name, tensor(scales), zeros, 0)
    return Call(REBUILD._rebuild_qtensor, stored, 0, (2, 3), (3, 1), scheme, False, OrderedDict())


def _parameter(chance: random.Random) -> Any:
    inner = chance.choice((_strided, _sparse))(chance)
    names = ("scale", "data", "grad", "_is_hf", "requires_grad", "__class__", "H")
    state = {chance.choice(names): _strided(chance)}
    ways = (
        Call(REBUILD._rebuild_parameter, inner, False, OrderedDict()),
        Call(REBUILD._rebuild_parameter_with_state, inner, False, OrderedDict(), state),
        Call(torch.nn.Parameter, inner, False, new=True),
        Call(torch._tensor._rebuild_from_type_v2, inner.function, torch.Tensor, inner.args, state),
    )
    return chance.choice(ways)


def _changed(chance: random.Random) -> Any:
    """A state for what should have none."""
    made = chance.choice((_strided, _sparse, _quantized, _parameter))(chance)
    if isinstance(made, Call):
        storage = data(_poisoned(chance, torch.ones(3)))
        made.state = chance.choice(((storage, 0, (3,), (1,)), {"data": 1}, (None, {"grad": None})))
    return made


def _array(chance: random.Random) -> Any:
    kind = chance.choice(("f8", "f4", "f2", "i4", "u1", "b1", "c8", "S3", "U2", "O8", "V4", "M8"))
    plain = (3, chance.choice("<>"), None, None, None, -1, -1, 0)
    if kind[0] in "SUV":
        plain = (*plain[:5], 8 if kind == "U2" else int(kind[1]), 4 if kind == "U2" else 1)
        plain = (*plain, 8 if kind == "U2" else 0)
    dtype = Call(np.dtype, kind, False, True, state=plain)
    width = 8 if kind == "U2" else int(kind[1])
    raw = bytes(3 * width)
    if kind == "f4":
        raw = bytes_of(_poisoned(chance, torch.ones(3)))
        dtype.state = (3, "<", *plain[2:])
    if chance.random() < 0.3:
        return Call(np._core.multiarray.scalar, dtype, raw[:width])
    made = Call(np._core.multiarray._reconstruct, np.ndarray, (0,), b"b")
    made.state = (1, (3,), dtype, False, raw)
    return made


def _generator(chance: random.Random) -> Any:
    kind = chance.choice((np.random.MT19937, np.random.Philox, np.random.PCG64))
    state = kind(1).state
    if chance.random() < 0.7:
        owner = chance.choice((state, state["state"]))
        key = chance.choice([key for key in owner if key != "bit_generator"])
        owner[key] = chance.choice((*ODD, np.zeros(3, np.uint64), np.zeros(700, np.uint32)))
    return Call(np.random._pickle.__dict__["__bit_generator_ctor"], kind.__name__, state=state)


def _called(chance: random.Random) -> Any:
    """Any function of the lists, with anything."""
    new = chance.random() < 0.3
    names = sorted(pickles.NEW if new else pickles.CALLS)
    name = chance.choice(
        [name for name in names if "Windows" not in name and "placement" not in name]
    )
    pool = (*ODD, *WORDS, b"", b"abcd", [], [1, 2], (), (1, 2), {}, {"a": 1}, range(2**33))
    args = [chance.choice(pool) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3)))]
    made = Call(Global(name), *args, new=new)
    if chance.random() < 0.2:
        made.state = chance.choice(({"a": 1}, {"items": 1}, {"int": -1}, (None, {"b": 1}), [1]))
    return made


def _plain(chance: random.Random) -> Any:
    """Values that real files have."""
    return chance.choice(
        (
            Call(bytearray, "ab", "latin-1"),
            Call(set, [1, 2, chance.choice((3, [4], {}, Call(bytearray), _strided(chance)))]),
            {chance.choice((1, (1, 2), (1, [2]), Call(OrderedDict), None, 1.5)): 1},
            Call(torch.Size, (chance.choice(ODD), 2)),
            Call(torch.device, chance.choice(("cpu", "cuda", "evil", "cuda:0")), 0),
            Call(OrderedDict, [("a", 1), chance.choice((("b", 2), ("c",), 5))]),
            Call(collections.Counter, chance.choice(({"a": 1}, "abc", 5))),
            [chance.choice(ODD)] * 3,
            torch.float32,
            torch.strided,
        )
    )


KINDS: dict[str, Callable[[random.Random], Any]] = {
    "strided": _strided,
    "sparse": _sparse,
    "nested": _nested,
    "quantized": _quantized,
    "parameter": _parameter,
    "state": _changed,
    "array": _array,
    "generator": _generator,
    "called": _called,
    "plain": _plain,
}


# -- files -----------------------------------------------------------------------------------------


def _crafted(chance: random.Random, kind: str) -> bytes:
    made = KINDS[kind](chance)
    if chance.random() < 0.6:
        made = _hit(chance, made, [chance.choice((1, 1, 2))])
    return archive({"model": {"w": made, "b": tensor(torch.ones(2))}})


def _safetensors(chance: random.Random) -> bytes:
    header: Any = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": chance.choice(("F32", "I32")), "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F16", "shape": [2, 0], "data_offsets": [8, 8]},
        "c": {"dtype": "F64", "shape": [], "data_offsets": [8, 16]},
    }
    for _ in range(chance.choice((0, 1, 1, 2))):
        owner = chance.choice((header, *header.values()))
        key = chance.choice([*owner])
        value = owner[key]
        if isinstance(value, list) and chance.random() < 0.7:
            value = [*value]
            value[chance.randrange(len(value) or 1) : 1] = [chance.choice(ODD)]
            owner[key] = value
        else:
            odd = ("F33", "f32", "F4", "F8_E8M0", "BF16", "\ud800", {}, [], "x", [2**63, 4])
            owner[key] = chance.choice((*ODD, *odd))
    raw = _poisoned(chance, torch.ones(4, dtype=torch.float32))
    text = json.dumps(header, ensure_ascii=chance.random() < 0.9).encode(
        chance.choice(("utf-8", "utf-8", "utf-8", "utf-16-le")), "surrogatepass"
    )
    return len(text).to_bytes(8, "little") + text + bytes_of(raw)


def _mutant(chance: random.Random, seeds: list[bytes]) -> bytes:
    """A real file, of which the pickle is another: checksums agree."""
    import io
    import zipfile

    raw = chance.choice([seed for seed in seeds if seed.startswith(b"PK")])
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                changed = bytearray(content)
                for _ in range(chance.choice((1, 1, 2, 4))):
                    place = chance.randrange(len(changed))
                    changed[place] = chance.choice((chance.randrange(256), content[place - 1]))
                content = bytes(changed)
            new.writestr(name, content)
    return made.getvalue()


def _file(chance: random.Random, kind: str, seeds: list[bytes]) -> bytes:
    if kind == "mutant":
        return _mutant(chance, seeds)
    if kind == "damaged":
        return mutate.mutant(chance, "checkpoint", chance.choice(seeds))
    return _safetensors(chance) if kind == "safetensors" else _crafted(chance, kind)


def files(seed: int, number: int) -> Iterator[tuple[str, str, bytes]]:
    """Kind, name and bytes of so many files."""
    chance = random.Random(seed)
    seeds = [raw for name, raw in real_checkpoints.files() if not name.endswith("tensors")]
    kinds = [*KINDS, "safetensors", "mutant", "damaged"]
    done = 0
    while done < number:
        kind = kinds[done % len(kinds)]
        try:
            raw = _file(chance, kind, seeds)
        except Exception:  # what cannot be written is no file
            continue
        suffix = "safetensors" if kind == "safetensors" else "pt"
        yield kind, f"{done}-{kind}.{suffix}", raw
        done += 1


def judged(path: Path) -> Checkpoint | None:
    """What we say of a file; None where it is no checkpoint."""
    try:
        return Checkpoint(scan(path))
    except NotACheckpoint:
        return None


def compare(folder: Path, seed: int, number: int) -> tuple[dict[str, dict[str, int]], list[str]]:
    """By kind how many are what, and the names of those that are good and should not be."""
    kinds, paths = [], []
    for kind, name, raw in files(seed, number):
        (folder / name).write_bytes(raw)
        kinds.append(kind)
        paths.append(folder / name)
    found = [judged(path) for path in paths]
    good = [each for each, one in enumerate(found) if one is not None and one.good]
    asked = [
        (paths[each], bool(found[each].scan.foreign or found[each].scan.beyond)) for each in good
    ]  # type: ignore[union-attr]
    said = dict(zip(good, oracle.verdicts(asked), strict=True))
    counts: dict[str, dict[str, int]] = collections.defaultdict(collections.Counter)  # type: ignore[assignment]
    wrong = []
    for number_, kind in enumerate(kinds):
        verdict = said.get(number_, "")
        counts[kind]["good" if verdict else "not good"] += 1
        if verdict not in ("", oracle.FIT):
            wrong.append(f"{paths[number_].name}: {verdict}")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        counts, wrong = compare(folder, options.seed, options.number)
    for kind, each in counts.items():
        print(f"{kind:12}{dict(each)}")
    print("\n".join(wrong) or "none that is good should not be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
