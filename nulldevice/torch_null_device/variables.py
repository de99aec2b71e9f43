"""The environment variables by which a process is on a null device, taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PREFIX = "NULLDEVICE_"
"""How the variables begin that the null device reads."""

LIBRARY = "libnulldevice.so"
"""The library that is preloaded."""


def without_null_device(environment: Mapping[str, str]) -> dict[str, str]:
    """The same environment for a child that is not to be on a null device which we are on."""
    if f"{PREFIX}GPU" not in environment:
        return dict(environment)
    found = {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
    preloaded = found.pop("LD_PRELOAD", "").split(":")
    if kept := [each for each in preloaded if Path(each).name != LIBRARY]:
        found["LD_PRELOAD"] = ":".join(kept)
    folders = {str(Path(each).parent) for each in preloaded if Path(each).name == LIBRARY}
    for name in ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH"):
        rest = [each for each in found.pop(name, "").split(":") if each and each not in folders]
        if rest:
            found[name] = ":".join(rest)
    return found
