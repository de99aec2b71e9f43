"""C code for library functions whose answer follows from their prototype: handles, workspace sizes,
work on the device.

cuBLAS, cuSOLVER, cuSPARSE and the like have thousands of functions that differ in a type. Each is
answered by what it is:

- ``...Create(handle*)`` hands out a handle, ``...Destroy(handle)`` takes it back;
- ``...SetStream(handle, stream)`` and ``...GetStream`` keep the stream, other ``...Set...``
  succeed;
- a parameter that takes a size (``size_t *bufferSize``, ``int *lwork``) gets 0: no workspace is
  wanted;
- what computes is a launch on its stream, and does nothing.

Other ``...Get...`` stay unanswered: what they would have to tell is not known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Library:
    """One library of NVIDIA's: how its functions begin, its headers, and its error for what is not
    supported.
    """

    prefix: str
    headers: tuple[str, ...]
    unsupported: int


LIBRARIES = (
    Library("cublasLt", ("cublasLt.h",), 15),  # CUBLAS_STATUS_NOT_SUPPORTED
    Library("cublas", ("cublas_api.h",), 15),
    Library("cusolver", ("cusolverDn.h",), 9),  # CUSOLVER_STATUS_NOT_SUPPORTED
    Library("cusparseLt", ("cusparseLt.h",), 10),  # CUSPARSE_STATUS_NOT_SUPPORTED
    Library("cusparse", ("cusparse.h",), 10),
    Library("cufft", ("cufft.h", "cufftXt.h"), 16),  # CUFFT_NOT_SUPPORTED
    Library("curand", ("curand.h",), 204),  # CURAND_STATUS_ARCH_MISMATCH is the nearest
    Library("cudnn", ("cudnn.h",), 3000),  # CUDNN_STATUS_NOT_SUPPORTED
    Library("nccl", ("nccl.h",), 5),  # ncclInvalidUsage
    Library("nvml", (), 3),  # NVML_ERROR_NOT_SUPPORTED
    Library("nvshmem", (), 7),  # NVSHMEMX_ERROR_INTERNAL
    Library("cuFile", (), 5001),  # CU_FILE_DRIVER_NOT_INITIALIZED
    Library("cupti", (), 27),  # CUPTI_ERROR_NOT_SUPPORTED
    Library("cuda", (), 801),  # cudaErrorNotSupported
    Library("__cuda", (), 801),
    # CUDA_ERROR_NOT_SUPPORTED: the driver; last, since its prefix begins the others'
    Library("cu", (), 801),
)


def library_of(function: str) -> Library | None:
    """The library that a function belongs to, by its name."""
    return next((library for library in LIBRARIES if function.startswith(library.prefix)), None)


@dataclass(frozen=True)
class Parameter:
    """``const float *A``: its type without spaces around it, and its name."""

    type: str
    name: str

    @property
    def takes_size(self) -> bool:
        """A pointer by which the function tells how much memory it would work in."""
        plain = re.fullmatch(r"(size_t|int|int64_t)\s*\*", self.type)
        return bool(plain and re.search(r"work|buffer|size", self.name, re.IGNORECASE))


@dataclass(frozen=True)
class Prototype:
    """One function as its header declares it."""

    returns: str
    name: str
    arguments: str
    parameters: tuple[Parameter, ...]

    def parameter(self, type_name: str) -> Parameter | None:
        """The first parameter of that type."""
        return next((one for one in self.parameters if one.type == type_name), None)


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_PROTOTYPE = re.compile(
    r"(?P<returns>\w+)\s+(?:\w+API\s+)?(?P<name>\w+)\s*\((?P<arguments>[^()]*)\)\s*;"
)
_PARAMETER = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)(?P<array>\[\w*\])?\Z", re.DOTALL)


def prototypes(header: str) -> dict[str, Prototype]:
    """Functions that a header declares, by name; those that take a function pointer are left
    out.
    """
    text = _DIRECTIVE.sub("", _COMMENT.sub(" ", header))
    found: dict[str, Prototype] = {}
    for match in _PROTOTYPE.finditer(text):
        arguments = " ".join(match["arguments"].split())
        parameters = (
            [_PARAMETER.match(one.strip()) for one in arguments.split(",")]
            if arguments not in {"", "void"}
            else []
        )
        if None not in parameters:
            read = tuple(
                Parameter(" ".join(one["type"].split()), one["name"]) for one in parameters if one
            )
            found.setdefault(
                match["name"], Prototype(match["returns"], match["name"], arguments or "void", read)
            )
    return found


def answer(function: Prototype, unsupported: int) -> str | None:
    """The body of a function in C; None where its prototype does not tell what to answer."""
    name, parameters = function.name, function.parameters
    sizes = "".join(f"if ({one.name}) *{one.name} = 0; " for one in parameters if one.takes_size)
    first = parameters[0] if parameters else None
    if first is None or re.search(r"Logger|Xt[A-Z]|Mg[A-Z]", name):
        return None
    if name.endswith("SetStream") and len(parameters) == 2:
        return (
            f"struct null_handle *one = null_handle_of({first.name}); if (one) one->stream = "
            f"{parameters[1].name}; return 0;"
        )
    if name.endswith("GetStream") and len(parameters) == 2:
        return f"*{parameters[1].name} = null_handle_stream({first.name}); return 0;"
    if re.search(r"Create|_createDescr|Init\Z", name):
        if not first.type.endswith("*") or first.type.startswith("const"):
            return None
        return (
            f"*(void **){first.name} = null_new_handle(); return *(void **){first.name} ? 0 : "
            f"{unsupported};"
        )
    if re.search(r"Destroy|_destroyDescr", name):
        return f"null_free_handle((const void *){first.name}); return 0;"
    if (
        re.search(r"[bB]ufferSize|Workspace|SpaceSize|WorkSpace|StatesSize", name)
        and sizes
        and "Set" not in name
    ):
        return f"{sizes}return 0;"
    if re.search(r"(Set|SetPointers|Restore)[A-Z_]", name) or "Set" in name:
        return "return 0;"
    if "Get" in name:
        return None
    return f'{sizes}null_library_launch("{name}", {_stream(function, first)}); return 0;'


def _stream(function: Prototype, first: Parameter) -> str:
    stream = function.parameter("cudaStream_t")
    return stream.name if stream else f"null_handle_stream((const void *){first.name})"


def definition(function: Prototype, body: str) -> str:
    """The function, written out in C."""
    # pointers to types that C++ alone knows
    arguments = re.sub(r"\b__half\b|\b__nv_bfloat16\b", "void", function.arguments)
    return f"EXPORT {function.returns} {function.name}({arguments}) {{ {body} }}\n"


def generated(
    library: Library, wanted: set[str], folders: list[Path], preprocessed: Callable[[str], str]
) -> str:
    """A C file with the answers of one library for the ``wanted`` functions; empty without its
    headers.

    ``preprocessed`` runs the compiler's preprocessor: a header may do no more than include others.
    """
    headers = [
        name for name in library.headers if any((folder / name).is_file() for folder in folders)
    ]
    includes = "".join(f"#include <{name}>\n" for name in ("stdalign.h", *headers))
    includes = f"#define CUSPARSE_ENABLE_EXPERIMENTAL_API\n{includes}"  # types since CUDA 13.2
    known: dict[str, Prototype] = {}
    for name in headers:
        path = next(folder / name for folder in folders if (folder / name).is_file())
        # also what only C++ sees: half precision
        known.update(prototypes(path.read_text(errors="replace")))
    known.update(prototypes(preprocessed(includes)) if headers else {})
    answered = {
        name: answer(known[name], library.unsupported) for name in sorted(wanted & known.keys())
    }
    lines = [definition(known[name], body) for name, body in answered.items() if body is not None]
    return "".join(['#include "null.h"\n', includes, *lines]) if lines else ""


_TEXT = re.compile(r"(Error|Status|Result)(String|Name)\Z|GetLastErrorString\Z")


def stub(function: str) -> str:
    """A function that says that it is not answered; without its prototype, which the ABI does not
    need.
    """
    library = library_of(function)
    code = library.unsupported if library else 1
    if _TEXT.search(function):
        return f'EXPORT const char *{function}(void) {{ return "an error of the null device"; }}\n'
    return (
        f"EXPORT int {function}(void) {{ static atomic_int said; return "
        f'null_unanswered("{function}", {code}, &said); }}\n'
    )
