"""Names that a pickle may call without running a stranger's code: torch's own list, and those of
frameworks. Data only.

The two lists are compared with the whole name, letter by letter. A pickle of protocol 4 may write a
path of attributes for a name (``_rebuild_tensor.__globals__``), so a name that only begins like a
good one is none.
"""

from __future__ import annotations

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
}
"""dtype of a storage class by the beginning of its name: those that torch has for the CPU and for
CUDA.
"""

QUANTIZED = {
    "QInt8": "qint8",
    "QUInt8": "quint8",
    "QInt32": "qint32",
    "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4",
}
"""dtype of the storage classes that torch has for the CPU only."""

_DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "complex32",
    "complex64",
    "complex128",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "quint4x2",
    "quint2x4",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "int1",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
]
_SCHEMES = [
    "per_tensor_affine",
    "per_tensor_symmetric",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
]
_REAL = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte")
_SPARSE = frozenset(
    f"torch.{where}sparse.{kind}Tensor" for where in ("", "cuda.") for kind in _REAL
)

VALUES = {f"torch.{name}": name for name in (*_DTYPES, *_SCHEMES)}
"""Names that stand for values: dtypes and quantization schemes. Nothing can call them."""

STORAGE_CLASSES = {
    **{
        f"torch.{where}{kind}Storage": dtype
        for where in ("", "cuda.")
        for kind, dtype in STORAGES.items()
    },
    **{f"torch.{kind}Storage": dtype for kind, dtype in QUANTIZED.items()},
    "torch.storage.UntypedStorage": "bytes",
    "torch.storage.TypedStorage": "bytes",
}
"""dtype by the whole name of a storage class."""

CALLED = frozenset(
    {
        "collections.OrderedDict",
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
        "torch._tensor._rebuild_from_type_v2",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_parameter_with_state",
        "torch._utils._rebuild_qtensor",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_sparse_tensor",
        "torch._utils._rebuild_meta_tensor_no_storage",
        "torch._utils._rebuild_nested_tensor",
        "torch._utils._rebuild_wrapper_subclass",
        "torch._utils._rebuild_device_tensor_from_numpy",
        "torch._utils._rebuild_device_tensor_from_cpu_tensor",
        *(f"torch.{where}{kind}Tensor" for where in ("", "cuda.") for kind in (*_REAL, "Bool")),
        *_SPARSE,
    }
)
"""Functions and classes of torch's list."""

TORCH = frozenset({*VALUES, *STORAGE_CLASSES, *CALLED})
"""What ``torch.load(weights_only=True)`` admits:
``torch._weights_only_unpickler._get_allowed_globals()`` of torch 2.13.

torch 2.6 to 2.13 differ only in dtypes that came later (tests/extensions/checkpoints/test_allowed.py compares
with the installed one).
"""

TENSOR_PACKAGE = (
    "torch.distributed.tensor.DTensor",  # the tensor, then what describes it
    "torch.distributed.tensor._dtensor_spec.DTensorSpec",
    "torch.distributed.tensor._dtensor_spec.ShardOrderEntry",
    "torch.distributed.tensor._dtensor_spec.TensorMeta",
    "torch.distributed.tensor.placement_types.Partial",
    "torch.distributed.tensor.placement_types.Replicate",
    "torch.distributed.tensor.placement_types.Shard",
    "torch.distributed.tensor.placement_types._StridedShard",
    "torch.distributed.device_mesh.DeviceMesh",
    "torch.distributed._mesh_layout._FlatLayout",
    "torch.distributed._mesh_layout._MeshLayout",
)
TORCH_AFTER_IMPORT = frozenset(
    {
        *TENSOR_PACKAGE,
        "torch.nested._internal.nested_tensor.NestedTensor",
        "torch.nested._internal.nested_tensor._rebuild_njt",
        "torch._dynamo.decorators._DimRange",
    }
)
"""What torch adds to its list by itself when a package of its own (``torch.distributed.tensor``
...) is imported.
"""

PATHS = tuple(
    f"pathlib{part}.{name}Path"
    for part in ("", "._local")
    for name in ("Posix", "Windows", "PurePosix", "PureWindows")
)
"""Paths: nothing is opened."""

OPTIONS = (
    "argparse.Namespace",
    "types.SimpleNamespace",
    "omegaconf.dictconfig.DictConfig",
    "omegaconf.listconfig.ListConfig",
    "omegaconf.base.ContainerMetadata",
    "omegaconf.base.Metadata",
    *(f"omegaconf.nodes.{kind}Node" for kind in ("Any", "Boolean", "Float", "Integer", "String")),
)
"""Classes that only hold options."""

LIGHTNING = (
    "lightning.fabric.utilities.data.AttributeDict",
    "lightning_fabric.utilities.data.AttributeDict",
    "lightning.pytorch.utilities.parsing.AttributeDict",
    "pytorch_lightning.utilities.parsing.AttributeDict",
)
"""Hyper-parameters of Lightning: dicts with attributes."""

MAPPINGS = ("yacs.config.CfgNode", *LIGHTNING)
"""Classes that are dicts with attributes."""

ENUMERATIONS = (
    "transformers.training_args.OptimizerNames",
    *(
        f"transformers.trainer_utils.{name}"
        for name in ("IntervalStrategy", "SaveStrategy", "SchedulerType", "HubStrategy")
    ),
    "accelerate.utils.dataclasses.DistributedType",
)
TRAINER = (
    "transformers.training_args.TrainingArguments",
    "transformers.trainer_pt_utils.AcceleratorConfig",
    "accelerate.state.PartialState",
)
"""Arguments of Hugging Face's Trainer: words for a choice, and objects that hold attributes."""

_ARRAY = "a numpy array, number or dtype: it is made of bytes and numbers"
_RANDOM = "the state of a numpy generator, which trainers save for an exact resumption"
_PLAIN = "a container or value of Python, made of what is in the file"
_PATH = "a path: nothing is opened"
_OPTIONS = "options of a command line or configuration: a class that only holds its attributes"
_LIGHTNING = "hyper-parameters of Lightning: a dict with attributes"
_TRAINER = (
    "arguments of Hugging Face's Trainer (training_args.bin): a dataclass and its enumerations"
)

_FRAMEWORKS: dict[str, tuple[str, ...]] = {
    _ARRAY: (
        *(
            f"numpy.{core}.multiarray.{name}"
            for core in ("core", "_core")
            for name in ("_reconstruct", "scalar")
        ),
        *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
        "numpy.ndarray",
        "numpy.dtype",
        *(f"numpy.{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
        *(f"numpy.{name}" for name in ("float16", "float32", "float64", "bool_", "bool")),
    ),
    _RANDOM: (
        "numpy.random._pickle.__randomstate_ctor",
        "numpy.random._pickle.__bit_generator_ctor",
        "numpy.random._pickle.__generator_ctor",
        "numpy.random.bit_generator.SeedSequence",
        "numpy.random.bit_generator.__pyx_unpickle_SeedSequence",
        *(
            f"numpy.random.{name}"
            for name in ("_mt19937.MT19937", "_pcg64.PCG64", "_pcg64.PCG64DXSM", "_philox.Philox")
        ),
    ),
    _PLAIN: (
        *(
            f"builtins.{name}"
            for name in ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "range")
        ),
        *(f"builtins.{name}" for name in ("slice", "str", "tuple")),
        *(f"collections.{name}" for name in ("defaultdict", "deque")),
        *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
        "decimal.Decimal",
        "fractions.Fraction",
        "uuid.UUID",
        "torch.torch_version.TorchVersion",
    ),
    _PATH: PATHS,
    _OPTIONS: (*OPTIONS, MAPPINGS[0], "typing.Any"),
    _LIGHTNING: LIGHTNING,
    _TRAINER: (*TRAINER, *ENUMERATIONS),
}

KNOWN: dict[str, str] = {
    **dict.fromkeys(
        sorted(TORCH_AFTER_IMPORT), "torch's own, admitted once its package is imported"
    ),
    **{name: reason for reason, names in _FRAMEWORKS.items() for name in names},
}
"""Names beyond torch's list that are inert in themselves, with the reason. ``torch.load`` asks for
``add_safe_globals``.
"""


def runs_code(name: str) -> bool:
    """True if making what the name stands for may run code: neither torch nor a known framework
    makes plain data of it.
    """
    return name not in TORCH and name not in KNOWN
