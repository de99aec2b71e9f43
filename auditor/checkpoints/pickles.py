"""Reads the pickle inside a checkpoint into inert marks: nothing that it names is ever imported or called."""

from __future__ import annotations

import pickle
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from auditor.checkpoints.contents import Malformed, Storage, Stored
from auditor.evidence.unpickle import memory_capped, no_collections

if TYPE_CHECKING:
    from typing_extensions import Self

STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "Untyped": "bytes",
}
"""dtype of a storage class by the beginning of its name."""

DTYPE = re.compile(r"b?float\d+\w*|u?int\d+|bool|complex\d+|q\w+|bits\w+|per_\w+")
"""Names in ``torch`` that are values: dtypes and quantization schemes."""

MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Modules of Python 2 by their name of today: pickles up to protocol 2 use the old ones."""

ADMITTED = (
    "collections.Counter",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.set",
    "_codecs.encode",
    "torch.Size",
    "torch.Tensor",
    "torch.device",
    "torch.nn.parameter.Parameter",
    "torch.serialization._get_layout",
)
"""What ``torch.load(weights_only=True)`` calls beside rebuild functions, storages and dtypes (torch 2.13)."""

MEMORY_PER_BYTE, MEMORY_AT_LEAST, MEMORY_LIMIT = 64, 2**28, 2**32
"""Bytes of memory that unpickling may take: a few opcodes can ask for more than any machine has."""


class Foreign:
    """In the place of an object of another program's class: remembers its parts, and does nothing."""

    origin = ""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Made in whatever way pickle makes it."""
        mark = super().__new__(cls)
        mark.__dict__["parts"] = [*args, *kwargs.values()]
        return mark

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Whatever it is called with was kept already."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__["parts"].append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__["parts"].append(value)

    def extend(self, items: Any) -> None:
        """What pickle does with the items of a subclass of list."""
        self.__dict__["parts"].extend(items)

    append = __setstate__
    add = __setstate__

    @property
    def inner(self) -> list[Any]:
        """What it was made of."""
        return list(self.__dict__.get("parts", ()))


class _Named(str):
    """A dtype, a storage class or the like: its name, and nothing to call."""

    __slots__ = ()


class MarkingUnpickler(pickle.Unpickler):
    """Admits plain containers; of all else it makes marks. ``foreign`` are the names that only running code would resolve."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="utf-8", errors="replace")
        self.foreign: dict[str, type[Foreign]] = {}
        self._inert: dict[str, type[Foreign]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """A mark for the name; nothing is imported."""
        full = f"{MODULES.get(module, module)}.{name}"
        if full == "collections.OrderedDict":
            return OrderedDict
        if full in REBUILD:
            return REBUILD[full]
        if full == "torch.Size":
            return tuple
        if module in ("torch", "torch.cuda", "torch.storage") and name.endswith("Storage"):
            return _Named(f"storage {name.removesuffix('Storage')}")
        return _Named(name) if module == "torch" and DTYPE.fullmatch(name) else self._mark(full)

    def persistent_load(self, pid: Any) -> Any:
        """A storage of the file."""
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # a module pickled whole: its class, beside its source
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise Malformed("it refers to something that is neither a storage nor a module")
        _, kind, key, _, numel, *view = pid
        if not isinstance(kind, str) or not isinstance(numel, int) or numel < 0:
            raise Malformed("a storage is described wrongly")
        name = kind.removeprefix("storage ")
        shift = view[0][1] if view and isinstance(view[0], tuple) and len(view[0]) == 3 else 0
        return Storage(str(key), STORAGES.get(name, name.lower()), numel, shift if isinstance(shift, int) and shift >= 0 else 0)

    def _mark(self, full: str) -> type[Foreign]:
        known = self._inert if _admitted(full) else self.foreign
        if full not in known:
            known[full] = type("Mark", (Foreign,), {"origin": full})
        return known[full]


def _admitted(full: str) -> bool:
    return full in ADMITTED or full.startswith(("torch._utils._rebuild_", "torch._tensor._rebuild_"))


# -- rebuild functions, as marks ---------------------------------------------------------------------------------------


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Stored:
    plain = isinstance(storage, Storage) and isinstance(offset, int) and isinstance(shape, tuple) and isinstance(stride, tuple)
    numbers = [offset, *shape, *stride] if plain else [None]
    if not all(isinstance(each, int) and each >= 0 for each in numbers) or len(shape) != len(stride):
        raise Malformed("a tensor is described wrongly")
    return Stored(storage, storage.dtype, offset + storage.shift, tuple(shape), tuple(stride))


def _tensor_v3(*args: Any) -> Stored:
    stored = _tensor(*args[:4])
    dtype = next((str(each) for each in args[4:] if isinstance(each, _Named)), stored.dtype)
    return replace(stored, dtype=dtype)


def _parameter(data: Any, *rest: Any) -> Any:
    return data


def _from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    own = any(function is each for each in REBUILD.values())
    return function(*args) if own and isinstance(args, tuple) else [args, state]


REBUILD: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
}
"""The functions that make tensors of storages: here they only describe them."""


def load(file: IO[bytes], size: int) -> tuple[Any, tuple[str, ...]]:
    """One pickle of the stream, and the names in it that nothing here stands for.

    Raises :class:`Malformed`, whatever is wrong with it: a hostile stream may raise almost anything.
    """
    unpickler = MarkingUnpickler(file)
    try:
        with memory_capped(min(MEMORY_LIMIT, MEMORY_AT_LEAST + MEMORY_PER_BYTE * size)), no_collections():
            found = unpickler.load()
    except Malformed:
        raise
    except (EOFError, pickle.UnpicklingError) as error:
        raise Malformed(f"its pickle breaks off or is damaged ({str(error)[:120] or type(error).__name__})") from None
    except MemoryError:
        raise Malformed("its pickle asks for more memory than it can need") from None
    except Exception as error:
        raise Malformed(f"its pickle is damaged ({type(error).__name__})") from None
    return found, tuple(sorted(unpickler.foreign))


NODES = 4_000_000
"""Objects of one checkpoint that are walked at most; each is visited once, however often it is referred to."""


DEPTH = 100
"""Containers in containers: of real checkpoints some ten. What lies deeper is left out."""


def walk(root: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """All values with their path, containers before what is in them; each container once."""
    seen: set[int] = set()
    ahead: list[tuple[tuple[str | int, ...], Any]] = [((), root)]
    while ahead and len(seen) < NODES:
        path, value = ahead.pop()
        inner = _inner(value)
        if inner is not None:
            if id(value) in seen:
                continue
            seen.add(id(value))
        yield path, value
        if len(path) < DEPTH:
            ahead.extend(((*path, key), each) for key, each in reversed(inner or ()))


def _inner(value: Any) -> list[tuple[str | int, Any]] | None:
    if isinstance(value, dict):
        return [(key if isinstance(key, (str, int)) else "?", each) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, Foreign):
        parts = [_inner(part) if isinstance(part, dict) else [(number, part)] for number, part in enumerate(value.inner)]
        return [item for part in parts for item in part or ()]
    return None
