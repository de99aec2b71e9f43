"""Each probe on torch's own CUDA code: the rows that it writes of a program that gives it something
to see, and that the program's process is afterwards as it was before.
"""

import gc
import pickle
import types
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from auditor.capture.instruments.torch_private import dispatch
from auditor.capture.probes.registry import PROBES
from auditor.judging import engine
from auditor.judging.catalogue import rules
from auditor.model.devices import CUDA, DeviceInfo
from tests import inprocess
from tests.inprocess import record

pytestmark = pytest.mark.usefixtures("inside")

STEPS = 6
ELSEWHERE = {"births": "a replay's", "copied_bytes": "verification's"}
ELSEWHERE |= {"device_use": "a rehearsal's", "leaner": "a rehearsal's", "limits": "a rehearsal's"}
"""Parts that no pass of a run on a GPU writes."""

OF_VALUES = {"nonfinite"}
"""Parts whose rows need values, of which a null device has none."""


def zoo():
    """A step in which every probe of a GPU's passes has something to see."""
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    frozen = nn.Linear(16, 4).to(device)
    stray = torch.rand(16, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW(
        [*model.parameters(), *frozen.parameters()], lr=1e-3, foreach=False
    )
    scaler = torch.amp.GradScaler("cuda")
    data = TensorDataset(torch.randn(512, 16), torch.randint(0, 4, (512,)))
    batches = iter(DataLoader(data, batch_size=8, pin_memory=True))
    kept: list[torch.Tensor] = []
    leaf = torch.ones(4, device=device, requires_grad=True)
    optimizer.load_state_dict(optimizer.state_dict())

    def step() -> None:
        x, y = next(batches)
        x, y = x.to(device, non_blocking=True), y.to(device)
        weight = torch.tensor([1.0, 1.0, 1.0, 1.0], device=device)
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.float16):
            hidden = checkpoint(model[0], x + stray)
            loss = nn.functional.cross_entropy(model[2](model[1](hidden)), y, weight)
        with torch.autograd.set_detect_anomaly(True):
            scaler.scale(loss).backward(retain_graph=True)
        leaf.square().sum().backward(create_graph=True)
        kept.append(loss)
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        pieces = x.float()
        total = torch.zeros(16, device=device)
        for row in range(len(pieces)):
            total = total + pieces[row] * 2
        for row in range(16):
            total[row].add_(1)
        float(total.double().sum())
        torch.cuda.empty_cache()
        torch.save(model.state_dict(), "weights.pt")

    return step


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(inprocess, "device_of", timed)
        return record(
            folder / "r",
            zoo,
            engine.parts_of(rules()),
            roots=[Path(__file__)],
            steps=STEPS,
            trace_steps=2,
            device="cuda",
        )


def timed(asked: str) -> DeviceInfo:
    """The null device as a GPU, which has timing passes as well."""
    return CUDA


def rows(recording, part: str) -> list[dict]:
    """The rows of a part as they stand on disk."""
    return recording.rows(part)


def test_no_probe_failed_and_each_pass_was_done(recording):
    assert recording.manifest["warnings"] == []
    assert rows(recording, "lapses") == []
    passes = [each["name"] for each in recording.manifest["passes"]]
    assert passes == "warmup quiet anomaly_off trace loud numbers gradients memory".split()


def test_every_part_of_a_gpu_run_is_there(recording):
    parts = {part for probe in PROBES if probe.in_runs for part in probe.parts}
    wanted = parts.intersection(engine.parts_of(rules())) - ELSEWHERE.keys() - OF_VALUES
    assert {part for part in wanted if not recording.has(part)} == set()


FILLED = (
    "amp backward batches calls copies cycles device_times doubles fed graphs loaders loads modes "
    "norms numerics optimizer owners piecewise reads saves steps strays"
).split()


@pytest.mark.parametrize("part", FILLED)
def test_a_probe_fills_its_rows(recording, part):
    assert rows(recording, part)


def test_steps_have_the_allocators_counters_and_a_time_between_events(recording):
    for row in rows(recording, "steps"):
        assert 0 < row["allocated"] <= row["peak_allocated"] <= row["peak_reserved"]
    times = [row for row in rows(recording, "device_times") if row["pass"] == "quiet"]
    assert len(times) == STEPS
    assert all(row["us"] > 0 for row in times)


def test_reads_name_their_kind(recording):
    assert "item" in {row["kind"] for row in rows(recording, "reads")}


def test_the_snapshot_has_lines_of_this_file_and_the_trace_kernels(recording):
    state = pickle.loads(recording.snapshot.read_bytes())
    frames = [
        frame
        for trace in state["device_traces"]
        for event in trace
        for frame in event.get("frames") or ()
    ]
    assert any(frame["filename"] == __file__ and frame["name"] == "step" for frame in frames)
    assert recording.trace is not None


def test_addresses_of_parameters_gradients_and_state_are_noted_in_the_memory_pass(recording):
    found = rows(recording, "owners")
    assert {row["pass"] for row in found} == {"memory"}
    assert {row["what"] for row in found} == {"step", "parameter", "gradient", "optimizer state"}


@pytest.mark.parametrize(("device", "steps"), [("cuda", 12), ("null", 9 + 3)])
def test_the_history_has_enough_steps_to_tell_growth(tmp_path, monkeypatch, device, steps):
    """On a GPU those of the memory pass; on the null device all."""
    monkeypatch.chdir(tmp_path)
    if device == "cuda":
        monkeypatch.setattr(inprocess, "device_of", timed)
    found = record(
        tmp_path / "r", zoo, engine.parts_of(rules()), roots=[Path(__file__)], device=device
    )
    begun = [int(row["unix_us"]) for row in rows(found, "steps")][-steps:]
    state = pickle.loads(found.snapshot.read_bytes())
    at = sorted(event["time_us"] for trace in state["device_traces"] for event in trace)
    assert len(begun) == steps
    assert all(any(one <= each < two for each in at) for one, two in pairwise([*begun, at[-1] + 1]))
    assert sum(row["what"] == "step" for row in rows(found, "owners")) == steps
    assert found.manifest["warnings"] == []


# -- what the process looks like ---------------------------------------------------------------------

WATCHED = (
    *(torch, torch.Tensor, torch.cuda, torch.cuda.Event, torch.cuda.Stream, torch.optim.Optimizer),
    *(torch.optim.AdamW, torch.autograd, torch.autograd.graph, torch.nn.Module, torch.nn.utils),
    *(torch.utils.data.DataLoader, torch.utils.data.dataloader._BaseDataLoaderIter),
    *(torch.amp.GradScaler, torch.profiler, torch.utils.checkpoint, gc),
)


def surface() -> dict[tuple[str, str], object]:
    """Every attribute that a probe could patch, functions with their code."""
    found = {}
    for owner in WATCHED:
        for name, value in list(vars(owner).items()):
            code = value.__code__ if isinstance(value, types.FunctionType) else None
            found[owner.__name__, name] = (id(value), id(code))
    found["gc", "callbacks"] = len(gc.callbacks)
    found["torch", "history"] = torch._C._cuda_isHistoryEnabled()
    found["torch", "modes"] = (len(dispatch.dispatch_modes()), len(dispatch.function_modes()))
    found["torch", "anomaly"] = torch.is_anomaly_enabled()
    found["torch", "sync debug"] = torch.cuda.get_sync_debug_mode()
    found["torch", "random"] = torch.random.initial_seed()
    return found


def test_the_process_is_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inprocess, "device_of", timed)
    zoo()()  # what torch makes lazily is there
    gc.collect()
    before = surface()
    record(
        tmp_path / "r",
        zoo,
        engine.parts_of(rules()),
        roots=[Path(__file__)],
        steps=3,
        trace_steps=1,
        device="cuda",
    )
    gc.collect()
    after = surface()
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == set()


def test_the_kernel_that_copies_is_torchs_own_again(tmp_path, recording):
    n = len(rows(recording, "copies"))
    torch.ones(3).to("cuda")
    assert len(rows(recording, "copies")) == n
    kernel = torch._C._dispatch_dump("aten::copy_")
    assert "CUDA" not in [line.split(":")[0] for line in kernel.splitlines()]


# -- copies to the device ----------------------------------------------------------------------------


def copying():
    """One line for each way to copy."""
    device = torch.device("cuda")
    table, host = torch.zeros(1000, device=device), torch.ones(64, 4)
    pinned, index = torch.ones(8).pin_memory(), torch.arange(5)
    numbers, scale = [1.0, 2.0], 3.0
    half = torch.bfloat16

    def step() -> None:
        host.to(device)  # 1024 B
        host.to(device, half)  # converted on the host: 512 B
        host.to(device, half, non_blocking=True)  # converted on the device: 1024 B
        host.cuda()
        pinned.to(device, non_blocking=True)
        torch.tensor([1.0, 2.0, 3.0], device=device)
        torch.tensor(numbers, device=device)
        torch.as_tensor(host, device=device)
        table[0] = scale
        table[:64] = host[:, 0]
        table[index]
        table[[1, 2]]
        table[index] = 1.0
        table.copy_(torch.tensor(2.0))  # broadcast on the host: 4000 B
        torch.zeros(3, device=device)
        table.mul_(2.0)
        table.to(device)
        table.cpu()
        torch.empty(0).to(device)

    return step


KINDS = [
    ("host.to(device)", 1024, "waits"),
    ("host.to(device, half)", 512, "waits"),
    ("host.to(device, half, non_blocking=True)", 1024, ""),
    ("host.cuda()", 1024, "waits"),
    ("pinned.to(device, non_blocking=True)", 32, "pinned"),
    ("torch.tensor([1.0, 2.0, 3.0], device=device)", 12, "waits constant"),
    ("torch.tensor(numbers, device=device)", 8, "waits constant"),
    ("torch.as_tensor(host, device=device)", 1024, "waits"),
    ("table[0] = scale", 4, "waits constant"),
    ("table[:64] = host[:, 0]", 256, "waits"),
    ("table[index]", 40, "waits index"),
    ("table[[1, 2]]", 16, "waits constant index"),
    ("table[index] = 1.0", 4, "waits constant"),
    ("table[index] = 1.0", 40, "waits index"),
    ("table.copy_(torch.tensor(2.0))", 4000, "waits"),
]


WORDS = {"pinned": "pinned", "waits": "blocking", "constant": "constant", "index": "index"}


def test_copies_are_told_by_line_with_bytes_memory_and_who_waits(tmp_path):
    recording = record(
        tmp_path / "r", copying, ("copies",), roots=[Path(__file__)], steps=3, device="cuda"
    )
    lines = Path(__file__).read_text().splitlines()
    seen = [
        (
            lines[recording.site(row["at"]).line - 1].partition("#")[0].strip(),
            row["bytes"],
            " ".join(word for word, key in WORDS.items() if row[key]),
        )
        for row in rows(recording, "copies")
        if row["step"] == 2
    ]
    assert seen == KINDS
