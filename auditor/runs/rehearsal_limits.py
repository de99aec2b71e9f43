"""Why a program cannot run without CUDA, or a rehearsal of it cannot be judged: what errors say, and
what the shadow cannot do.
"""

from __future__ import annotations

import re

from auditor.recordings.folder import Recording
from auditor.recordings.schema import DeviceUseRow, LimitRow, StepRow
from auditor.runs.finalize import raised
from auditor.runs.plan import LEAST_REHEARSED

NO_CUDA = re.compile(
    r"not compiled with CUDA|No CUDA GPUs are available|no NVIDIA driver|not linked with support for cuda"
    r"|doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs"
    r"|torch\.cuda\.is_available\(\) is False|cuda\.is_available|Cannot access accelerator device when none is available"
    r"|module 'torch\._C' has no attribute '_cuda_|\bcuda\b.*\bnot available\b|requires? (a )?(CUDA|GPU)",
    re.IGNORECASE,
)
"""How torch, and programs, say that they cannot go on without CUDA."""


OUR_LIMIT = re.compile(
    r"'CUDA' backend|Cannot access accelerator device when none is available|not compiled with CUDA|compiled without CUDA"
    r"|not linked with support for cuda|no NVIDIA driver|NCCL built in|module 'torch\._C' has no attribute '_cuda_"
    r"|libcuda(rt)?\b|CUDA driver|\bactive drivers\b|No CUDA GPUs are available|cudaGetDeviceCount",
    re.IGNORECASE,
)
"""How code in C, of torch and others, says that it looked for a real device: in a rehearsal one was
promised.
"""


def our_limit(said: str, where: str = "") -> str:
    """An error that a rehearsal ended with, as the rehearsal's own limit; empty if it is none."""
    if not OUR_LIMIT.search(said):
        return ""
    sentence = said.partition(". ")[0][:200]
    limit = (
        "this is a limit of the rehearsal, not a fault of the target: a call bypassed the simulated "
        "GPU and looked for a real one"
    )
    return f"{limit} ({sentence}{where})"


def needs_cuda(text: str) -> bool:
    """True of an error that says that there is no CUDA."""
    return NO_CUDA.search(text) is not None


def unfit(rehearsed: Recording) -> str:
    """Why a rehearsal cannot be judged; empty if it can."""
    manifest = rehearsed.manifest
    steps = sum(row.pass_name == "loud" for row in rehearsed.rows(StepRow))
    planned = {row["name"]: row["steps"] for row in manifest.get("planned", ())}
    limit = limit_of(rehearsed)
    if limit:
        return limit
    if manifest["outcome"] == "oom":
        return (
            f"it runs out of memory after {steps} steps: "
            f"{(manifest.get('error') or {}).get('message', '')}"
        )
    if steps < min(LEAST_REHEARSED, planned.get("loud", LEAST_REHEARSED)):
        said, where = raised(rehearsed.manifest)
        ours = our_limit(said, where)
        ended = f"it ended after {steps} step{'s' * (steps != 1)}"
        return f"{ended}; {ours}" if ours else f"{ended} ({said.removesuffix(': ')}{where})"
    return unused(rehearsed)


def unused(rehearsed: Recording) -> str:
    """What it means that steps completed and none ran anything on the device; empty if that is not
    so.
    """
    used = rehearsed.rows(DeviceUseRow)
    if not used or any(row.n for row in used):
        return ""
    return (
        "the target put nothing on the CUDA device that it was offered (its device is fixed to the "
        "CPU?)"
    )


def limit_of(rehearsed: Recording) -> str:
    """What the program asked for that the shadow cannot do, and where; empty if nothing."""
    ended = next(iter(rehearsed.rows(LimitRow)), None)
    if ended is None:
        return ""
    where = f" at {rehearsed.site(ended.at)}" if ended.at is not None else ""
    return f"{ended.reason}{where}"
