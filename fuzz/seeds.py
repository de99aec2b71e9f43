"""Small whole files of every kind that `audit` reads of strangers, by the kind's name. Made without
a GPU, in a second.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fuzz import hostile_checkpoints

ROOT = Path(__file__).resolve().parent.parent


def _trace() -> dict[str, object]:
    events: list[dict[str, object]] = []
    for step in range(3):
        at = 1000 * step
        span = {"ph": "X", "pid": 1, "tid": 1}
        events += [
            {
                **span,
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": at,
                "dur": 900,
            },
            {
                **span,
                "cat": "cpu_op",
                "name": "aten::mm",
                "ts": at + 10,
                "dur": 90,
                "args": {"Input Dims": [[8, 8], [8, 8]]},
            },
            {
                **span,
                "cat": "cpu_op",
                "name": "aten::item",
                "ts": at + 200,
                "dur": 300,
                "args": {"Sequence number": step},
            },
            {
                **span,
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": at + 20,
                "dur": 5,
                "args": {"correlation": 2 * step},
            },
            {
                **span,
                "cat": "cuda_runtime",
                "name": "cudaStreamSynchronize",
                "ts": at + 210,
                "dur": 280,
                "args": {"correlation": 1},
            },
            {
                "ph": "X",
                "cat": "kernel",
                "name": "sgemm",
                "pid": 0,
                "tid": 7,
                "ts": at + 40,
                "dur": 400,
            }
            | {"args": {"device": 0, "stream": 7, "correlation": 2 * step}},
            {
                "ph": "X",
                "cat": "gpu_memcpy",
                "name": "Memcpy DtoH",
                "pid": 0,
                "tid": 7,
                "ts": at + 450,
                "dur": 4,
            }
            | {"args": {"device": 0, "stream": 7, "correlation": 2 * step + 1, "bytes": 4}},
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1,
                "tid": 1,
                "ts": at + 60,
            }
            | {
                "args": {
                    "Bytes": 512,
                    "Device Id": 0,
                    "Device Type": 1,
                    "Total Allocated": 512,
                    "Total Reserved": 1024,
                }
            },
        ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        "traceEvents": events,
        "baseTimeNanoseconds": 5,
    }


def _rank(rank: int, size: int) -> dict[str, object]:
    """The same trace as one rank of a job tells it: its clock is off by a second, and it comes late
    to a collective.
    """
    trace = _trace()
    events = [{**each, "ts": each["ts"] + 1e6 * rank} for each in trace["traceEvents"]]  # type: ignore[attr-defined]
    for step in range(3):
        at = 1000 * step + 1e6 * rank + 460 + 20 * rank
        args = {
            "device": 0,
            "stream": 20,
            "correlation": 100 + step,
            "Collective name": "allreduce",
            "Group size": size,
        }
        args |= {
            "dtype": "Float",
            "In msg nelems": 1024,
            "Out msg nelems": 1024,
            "Process Group Name": "0",
        }
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        events += [
            {
                "ph": "X",
                "cat": "kernel",
                "name": name,
                "pid": 0,
                "tid": 20,
                "ts": at,
                "dur": 200 - 20 * rank,
                "args": args,
            }
        ]
    return {
        **trace,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": size},
        "traceEvents": events,
    }


def _snapshot() -> dict[str, object]:
    frames = [{"filename": "train.py", "name": "step", "line": 7}]
    block = {
        "size": 512,
        "requested_size": 500,
        "address": 4096,
        "state": "active_allocated",
        "frames": frames,
    }
    segment = {
        "device": 0,
        "address": 4096,
        "total_size": 2 << 20,
        "allocated_size": 512,
        "active_size": 512,
        "stream": 0,
    }
    segment |= {
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
    }
    segment["blocks"] = [
        block,
        {**block, "address": 4608, "size": (2 << 20) - 512, "state": "inactive", "frames": []},
    ]
    change = {"addr": 4096, "size": 512, "stream": 0, "frames": frames, "time_us": 5, "device": 0}
    history = [{**change, "action": "segment_alloc", "size": 2 << 20}]
    for number in range(6):
        history += [
            {**change, "action": each, "time_us": 10 * number}
            for each in ("alloc", "free_requested", "free_completed")
        ]
    history += [{**change, "action": "alloc"}]
    return {
        "segments": [segment],
        "device_traces": [history],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
    }


PROGRAM = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
losses = []
def step():
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def recorded() -> dict[str, bytes]:
    """Files of a small audit, by their path in its folder: report.json, report.html and the
    recording.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "small.py").write_text(PROGRAM)
        command = [
            sys.executable,
            "-m",
            "auditor",
            "run",
            "small:step",
            "--steps",
            "6",
            "--device",
            "cpu",
            "--out",
            "out",
        ]
        path = os.pathsep.join((str(ROOT), folder))
        subprocess.run(
            command,
            cwd=folder,
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        out = Path(folder) / "out"
        files = [out / "report.json", out / "report.html", *sorted((out / "recording").rglob("*"))]
        return {
            str(each.relative_to(out)): each.read_bytes()
            for each in files
            if each.is_file() and each.stat().st_size < 2**22
        }


def _tensor(kind: str) -> bytes:
    word = hostile_checkpoints.word
    storage = (
        b"("
        + word("storage")
        + f"ctorch\n{kind}Storage\n".encode()
        + word("0")
        + word("cpu")
        + b"K\x04tQ"
    )
    made = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + b"K\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"
    )
    return (
        b"\x80\x02}("
        + word("model")
        + b"}"
        + word("layer.weight")
        + made
        + b"s"
        + word("step")
        + b"K\x05u."
    )


def seeds() -> Iterator[tuple[str, bytes]]:
    """Kind and bytes. Kinds: trace, rank (a trace of a job), snapshot, checkpoint, config;
    :func:`recorded` has more.
    """
    trace = json.dumps(_trace())
    yield "trace", trace.encode()
    yield "trace", json.dumps(_trace(), indent=2).encode()
    yield "trace", gzip.compress(trace.encode(), mtime=0)
    for rank in range(2):
        yield "rank", json.dumps(_rank(rank, 2)).encode()
    yield "rank", gzip.compress(json.dumps(_rank(1, 2)).encode(), mtime=0)
    for protocol in (2, 4):
        yield "snapshot", pickle.dumps(_snapshot(), protocol)
    yield "snapshot", gzip.compress(pickle.dumps(_snapshot(), 2), mtime=0)
    yield (
        "checkpoint",
        hostile_checkpoints.archive(_tensor("Float"), data__0=bytes(16), byteorder=b"little"),
    )
    yield "checkpoint", hostile_checkpoints.archive(_tensor("Double"), data__0=bytes(32))
    legacy = hostile_checkpoints.legacy(_tensor("Float").replace(b"K\x04tQ", b"K\x04NtQ"))
    yield (
        "checkpoint",
        legacy[: -len(pickle.dumps([], 2))]
        + pickle.dumps(["0"], 2)
        + (4).to_bytes(8, "little")
        + bytes(16),
    )
    header = (
        b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
    )
    yield "checkpoint", len(header).to_bytes(8, "little") + header + bytes(16)
    yield "config", b"optimizer: &o\n  lr: 1.0e-3\n  betas: [0.9, 0.95]\nother: *o\nfp16: true\n"
    yield "config", b'{"train": {"lr": 0.001, "max_steps": 100}, "fp16": {"enabled": true}}'
