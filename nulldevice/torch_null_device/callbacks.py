"""CUPTI's numbers of the runtime's and the driver's functions, read from its headers and written as
tables of C.

A trace names a call by such a number (`cbid`); torch's profiler asks `cuptiGetCallbackName` for the
name. The headers hold both as one enum: `CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020 = 20`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from torch_null_device.errors import NullDeviceProblem

HEADERS = {"runtime": "cupti_runtime_cbid.h", "driver": "cupti_driver_cbid.h"}
NUMBER = re.compile(r"CUPTI_(?:RUNTIME|DRIVER)_TRACE_CBID_(c\w+)\s*=\s*(\d+)")


def numbers(header: str) -> dict[int, str]:
    """`{20: "cudaMalloc_v3020", ...}` of the text of one of CUPTI's two headers."""
    return {int(number): name for name, number in NUMBER.findall(header)}


def table(domain: str, names: dict[int, str]) -> str:
    """The names of a domain as an array of C, each at its number."""
    entries = "\n".join(f'    [{number}] = "{name}",' for number, name in sorted(names.items()))
    size = f"#define NULL_{domain.upper()}_CALLBACKS {max(names, default=0) + 1}\n"
    return (
        f"{size}static const char *const null_{domain}_callbacks[NULL_{domain.upper()}_CALLBACKS] "
        f"= {{\n{entries}\n}};\n"
    )


def tables(folders: Iterable[Path]) -> str:
    """The text of `callbacks.h` by the headers in the first of `folders` that has them.

    Raises NullDeviceProblem where none has.
    """
    places = list(folders)
    written = ["/* Written by torch_null_device/callbacks.py. */"]
    for domain, header in HEADERS.items():
        found = next((folder / header for folder in places if (folder / header).is_file()), None)
        if found is None:
            where = ", ".join(map(str, places))
            raise NullDeviceProblem(
                f"CUPTI's header {header} is in none of: {where}",
                "pip install nvidia-cuda-cupti of torch's CUDA version",
            )
        written.append(table(domain, numbers(found.read_text())))
    return "\n".join(written)
