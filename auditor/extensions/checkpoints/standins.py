"""What honest trainers save beside their weights and torch's own list does not have.

Each name is let in as ``torch.serialization.safe_globals`` has it, but what is called is a stand-in
of ours, which keeps what it is given: nothing of NumPy or of a framework runs. An array of objects
is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from numpy.typing import NDArray

used: set[str] = set()
"""Names that the file asked for."""


class Standin:
    """Keeps its arguments and its state."""

    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any) -> Self:
        """Made by a call, or without one."""
        made = super().__new__(cls)
        made.args, made.state = args, None
        used.update(each.name for each in (cls, *args) if is_class(each))
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def parts(self) -> Iterator[tuple[str | int, Any]]:
        """What it holds, with the keys of its state."""
        yield from enumerate(self.args)
        for part in self.state if isinstance(self.state, tuple) else (self.state,):
            yield from dict.items(part) if isinstance(part, dict) else (("state", part),)


def is_class(value: Any) -> bool:
    """True for the name of a stand-in, which nothing called."""
    return isinstance(value, type) and issubclass(value, Standin)


class Dtype(Standin):
    """``numpy.dtype``: a letter and a width."""

    def __new__(cls, *args: Any) -> Self:
        """Refuses an array of objects."""
        if not (args and isinstance(args[0], str) and re.fullmatch(r"[biufcSUVMm]\d*", args[0])):
            raise UnpicklingError("it holds an array of objects, which only pickle can read")
        return super().__new__(cls, *args)

    def read(self, raw: Any, shape: Any) -> NDArray[Any] | str | None:
        """The numbers, or why they are not looked at; None of texts."""
        import numpy as np

        code = self.args[0]
        if code[0] in "SU":
            return None
        if code not in ("b1", "f2", "f4", "f8", "c8", "c16") and code[0] not in "iu":
            return f"is of numpy.{code}"
        order = self.state[1] if isinstance(self.state, tuple) else "<"
        numbers = np.frombuffer(raw, ">" + code if order == ">" else "<" + code)
        return numbers.astype(numbers.dtype.newbyteorder("=")).reshape(shape)


class Array(Standin):
    """An array of NumPy."""

    def read(self) -> NDArray[Any] | str | None:
        """As of its dtype."""
        _, shape, dtype, _, raw = self.state
        return _dtype(dtype).read(raw, shape)


class Scalar(Standin):
    """A number of NumPy."""

    def read(self) -> NDArray[Any] | str | None:
        """As of its dtype, in an array without dimensions."""
        dtype, raw = self.args
        return _dtype(dtype).read(raw, ())


def _dtype(value: Any) -> Dtype:
    if not isinstance(value, Dtype):
        raise TypeError("an array has no dtype")
    return value


class Filled(Standin):
    """What torch fills afterwards: it does so with a plain list or dict, and nothing else."""

    plain: type = dict

    def __new__(cls, items: Any = (), *_: Any) -> Any:
        """The first argument is what is in a list, and nothing of a dict."""
        used.add(cls.name)
        return list(items) if cls.plain is list else cls.plain()


class List(Filled):
    """In the place of a deque."""

    plain = list


class Bytes(Filled):
    """No bytes, as pickle writes them."""

    plain = bytes


KEPT = """
    builtins.bool builtins.dict builtins.float builtins.frozenset builtins.int builtins.list
    builtins.range builtins.slice builtins.str builtins.tuple typing.Any
    argparse.Namespace types.SimpleNamespace datetime.date datetime.datetime datetime.time
    datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction uuid.UUID
    pathlib.PosixPath pathlib.PurePosixPath pathlib.WindowsPath pathlib.PureWindowsPath
    pathlib._local.PosixPath pathlib._local.PurePosixPath
    numpy.ndarray numpy.random._pickle.__generator_ctor numpy.random._pickle.__bit_generator_ctor
    numpy.random._pickle.__randomstate_ctor numpy.random._mt19937.MT19937
    numpy.random._pcg64.PCG64 numpy.random._pcg64.PCG64DXSM numpy.random._philox.Philox
    numpy.random._sfc64.SFC64 numpy.random.bit_generator.SeedSequence
    numpy.random.bit_generator.__pyx_unpickle_SeedSequence
    torch.torch_version.TorchVersion
    torch.amp.grad_scaler.GradScaler torch.amp.grad_scaler.OptState
    torch.amp.grad_scaler._refresh_per_optimizer_state torch.cuda.amp.grad_scaler.GradScaler
    torch.cuda.amp.grad_scaler._refresh_per_optimizer_state
    transformers.training_args.TrainingArguments transformers.training_args.OptimizerNames
    transformers.trainer_utils.IntervalStrategy transformers.trainer_utils.SaveStrategy
    transformers.trainer_utils.SchedulerType transformers.trainer_utils.HubStrategy
    transformers.trainer_pt_utils.AcceleratorConfig accelerate.state.PartialState
    accelerate.utils.dataclasses.DistributedType
    omegaconf.dictconfig.DictConfig omegaconf.listconfig.ListConfig
    omegaconf.base.ContainerMetadata omegaconf.base.Metadata omegaconf.nodes.AnyNode
    omegaconf.nodes.BooleanNode omegaconf.nodes.FloatNode omegaconf.nodes.IntegerNode
    omegaconf.nodes.StringNode
""".split()

DICTS = """
    collections.defaultdict lightning.fabric.utilities.data.AttributeDict
    lightning_fabric.utilities.data.AttributeDict lightning.pytorch.utilities.parsing.AttributeDict
    pytorch_lightning.utilities.parsing.AttributeDict
""".split()


def let_in() -> list[Any]:
    """What ``torch.serialization.add_safe_globals`` is given."""
    kinds: dict[str, type[Standin]] = {
        **dict.fromkeys(KEPT, Standin),
        **dict.fromkeys(DICTS, Filled),
        "collections.deque": List,
        "builtins.bytes": Bytes,
        "numpy.dtype": Dtype,
    }
    for package in ("numpy.core.multiarray", "numpy._core.multiarray"):
        kinds |= {f"{package}._reconstruct": Array, f"{package}.scalar": Scalar}
    return [(type(kind.__name__, (kind,), {"name": name}), name) for name, kind in kinds.items()]
