"""Checkpoints built by hand: any call, any state, any storage, in an archive that is whole."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from typing import Any

import torch

REBUILD = torch._utils
STORAGES = {
    "float64": torch.DoubleStorage,
    "float32": torch.FloatStorage,
    "float16": torch.HalfStorage,
    "bfloat16": torch.BFloat16Storage,
    "int64": torch.LongStorage,
    "int32": torch.IntStorage,
    "int16": torch.ShortStorage,
    "int8": torch.CharStorage,
    "uint8": torch.ByteStorage,
    "bool": torch.BoolStorage,
    "complex64": torch.ComplexFloatStorage,
    "complex128": torch.ComplexDoubleStorage,
    "qint8": torch.QInt8Storage,
    "quint8": torch.QUInt8Storage,
    "qint32": torch.QInt32Storage,
    "quint4x2": torch.QUInt4x2Storage,
    "bytes": torch.UntypedStorage,
}


class Global:
    """A name, whether it can be imported or not."""

    def __init__(self, full: str) -> None:
        self.full = full


class Call:
    """The result of a call; with ``state``, changed by BUILD afterwards."""

    def __init__(self, function: Any, *args: Any, state: Any = None, new: bool = False) -> None:
        self.function, self.args, self.state, self.new = function, args, state, new


class Again:
    """What was made before, and gets a state now."""

    def __init__(self, made: Call, state: Any) -> None:
        self.made, self.state = made, state


class Data:
    """A storage of the file. ``said`` is the number of elements that the pickle gives it."""

    def __init__(
        self, raw: bytes, dtype: str, said: Any, *, key: str = "", place: str = "cpu"
    ) -> None:
        self.raw, self.dtype, self.said, self.key, self.place = raw, dtype, said, key, place


class Writer(pickle._Pickler):  # the one of Python can be taught more
    """Writes protocol 2, as torch does, and keeps the storages."""

    def __init__(self, file: io.BytesIO, protocol: int = 2) -> None:
        super().__init__(file, protocol)
        self.records: dict[str, bytes] = {}

    def persistent_id(self, value: Any) -> Any:
        """What the pickle refers to a storage by."""
        if not isinstance(value, Data):
            return None
        key = value.key or str(len(self.records))
        if not value.key:
            value.key = key
        self.records[key] = value.raw
        return ("storage", STORAGES[value.dtype], key, value.place, value.said)

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        """One value, and what is made by hand."""
        if isinstance(value, Global):
            module, _, name = value.full.rpartition(".")
            self.write(f"c{module}\n{name}\n".encode())
        elif isinstance(value, Again):
            self.save(value.made)
            self.save(value.state)
            self.write(pickle.BUILD)
        elif isinstance(value, Call):
            known = self.memo.get(id(value))
            if known is not None:
                self.write(self.get(known[0]))
                return
            self.save(value.function)
            self.save(value.args)
            self.write(pickle.NEWOBJ if value.new else pickle.REDUCE)
            self.memoize(value)
            if value.state is not None:
                self.save(value.state)
                self.write(pickle.BUILD)
        else:
            super().save(value, save_persistent_id)


def archive(tree: Any, *, protocol: int = 2, **more: bytes) -> bytes:
    """The file of a tree. ``more`` are records by their name, in the place of its own."""
    file = io.BytesIO()
    writer = Writer(file, protocol)
    writer.dump(tree)
    return packed(file.getvalue(), {**writer.records, **more})


def packed(pickled: bytes, records: dict[str, bytes]) -> bytes:
    """An archive of a pickle and its storages."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/byteorder", b"little")
        for name, content in records.items():
            file.writestr(f"a/data/{name}", content)
        file.writestr("a/version", b"3\n")
    return made.getvalue()


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Those of its elements."""
    return bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def data(tensor: torch.Tensor, **more: Any) -> Data:
    """The storage of a tensor."""
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = name if name in STORAGES else "bytes"
    raw = bytes_of(tensor)
    return Data(raw, dtype, len(raw) if dtype == "bytes" else tensor.numel(), **more)


def tensor(values: torch.Tensor, **more: Any) -> Call:
    """A tensor as torch writes it; ``more`` changes what is written: offset, shape, stride, grad,
    hooks.
    """
    storage = more.pop("storage", None) or data(values)
    told = {
        "offset": 0,
        "shape": tuple(values.shape),
        "stride": tuple(values.contiguous().stride()),
        "grad": False,
        "hooks": OrderedDict(),
        **more,
    }
    bits = () if "bits" not in told else (told.pop("bits"),)
    if storage.dtype == "bytes":
        told["dtype"] = told.get("dtype", values.dtype)
        return Call(REBUILD._rebuild_tensor_v3, storage, *told.values(), *bits)
    return Call(REBUILD._rebuild_tensor_v2, storage, *told.values(), *bits)
