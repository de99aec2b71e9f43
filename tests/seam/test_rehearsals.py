"""``--device auto`` without a GPU rehearses the GPU path; ``rehearse`` does only that."""

import json
import textwrap

import pytest
import torch

from auditor.evidence.snapshot.file import load_plain
from tests.lazily import Lazily

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a machine with a GPU runs the path itself"
)

BODY = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    {device}
    model = nn.Linear(8, 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.ones(4000, 8), torch.ones(4000, 1)), batch_size=8, num_workers=0, pin_memory=True)
    batches = iter(loader)

    def step():
        x, y = next(batches)
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        {more}
"""
PORTABLE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'

LEAVES = 'if not torch.cuda.is_available():\n        raise SystemExit(1)\n    device = "cuda"'
COMPILES = PORTABLE + "\n    f = torch.compile(lambda x: x * 2)"

PARTS = {
    "portable": (PORTABLE, "torch.cuda.synchronize() if device.type == 'cuda' else None"),
    "gpu_only": ('device = "cuda"', "print(loss.item())"),
    "leaves_without_a_gpu": (LEAVES, "print(loss.item())"),
    "cpu_only": ('device = "cpu"', "print(loss.item())"),
    "compiled": (COMPILES, "f(loss.detach()); loss.item()"),
    "parallel": (PORTABLE, "nn.DataParallel(model, [0, 1]); loss.item()"),
    "hungry": (PORTABLE, "kept.append(torch.empty(3 << 20, device=device))"),
    "breaks_on_a_gpu": (PORTABLE, 'assert device.type == "cpu", "no kernel for this card"'),
}
TARGETS = {name: BODY.format(device=device, more=more) for name, (device, more) in PARTS.items()}
TARGETS["hungry"] = TARGETS["hungry"].replace("    def step", "    kept = []\n\n    def step")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit):
    folder = tmp_path_factory.mktemp("rehearsals")

    def one(name):
        source, more = TARGETS[name.removeprefix("rehearsed_")], ()
        if name.startswith("rehearsed"):
            more = ("--device", "rehearse")
        if name == "rehearsed_portable":
            more = (*more, "--gpu", "L4")
        if name.endswith("hungry"):
            more = (*more, "--memory-limit", "164MiB")  # cuBLAS takes 64 of them
        (folder / f"{name}.py").write_text(textwrap.dedent(source))
        out = folder / f"out-{name}"
        words = "run", f"{name}:step", "--steps", "12", "--out", str(out)
        done = audit(*words, *more, cwd=folder, timeout=400)
        report = out / "report.json"
        return done, json.loads(report.read_text()) if report.is_file() else {}, out

    return Lazily(one)


def said(report, code):
    found = [f for f in report["findings"] if f["code"] == code]
    return [(f["site"]["text"], f["seen_on"], f["basis"]) for f in found]


def status(report, code):
    return next(v["status"] for v in report["verdicts"] if v["code"] == code)


def test_a_portable_trainer_is_timed_on_the_cpu_and_rehearsed(runs):
    done, report, out = runs["portable"]
    assert done.returncode == 0, done.stderr
    assert report["run"]["device"] == "cpu"
    assert report["run"]["step_us"]["n"] == 12
    assert said(report, "SYNC004") == [
        ("torch.cuda.synchronize() if device.type == 'cuda' else None", "rehearsal", "none")
    ]
    clean = "SYNC001", "SYNC006", "DATA003", "DATA009", "GRAPH001"
    assert [status(report, code) for code in clean] == ["clean"] * 5
    assert report["warnings"] == []
    assert "H200" in report["environment"]["rehearsed on"]
    assert (out / "recording" / "rehearsal" / "manifest.json").is_file()


def test_its_memory_is_drawn_as_predicted_with_steps_marked(runs):
    (chart,) = runs["portable"][1]["layers"]
    assert chart["note"].startswith("Predicted")
    labels = [label for _, label in chart["marks"] if label.startswith("step ")]
    assert labels == [f"step {number}" for number in range(len(labels))]
    assert len(labels) >= 12
    assert [place for place, _ in chart["marks"]] == sorted(place for place, _ in chart["marks"])
    assert any("portable.py:" in tone["name"] for tone in chart["layers"])
    assert runs["portable"][1]["parts"]["rows"][0] == "mean: host"
    assert runs["cpu_only"][1]["layers"] == []


@pytest.mark.parametrize(
    "name", ["gpu_only", pytest.param("leaves_without_a_gpu", marks=pytest.mark.full)]
)
def test_a_trainer_that_needs_cuda_is_rehearsed_instead(runs, name):
    done, report, _ = runs[name]
    assert done.returncode == 0, done.stderr
    found = [report["run"][key] for key in ("device", "outcome", "step_us")]
    assert found == ["rehearse", "completed", None]
    assert any("cannot run without CUDA" in warning for warning in report["warnings"])
    assert said(report, "SYNC001") == [("print(loss.item())", "rehearsal", "none")]


def test_a_trainer_that_ignores_the_gpu_waits_for_nothing(runs):
    done, report, out = runs["cpu_only"]
    assert done.returncode == 0
    assert any("put nothing on the CUDA device" in warning for warning in report["warnings"])
    assert status(report, "SYNC001") == "skipped"
    assert [each["code"] for each in report["findings"] if each["code"].startswith("SYNC")] == []
    assert not (out / "recording" / "rehearsal").exists()


@pytest.mark.full
def test_a_compiled_function_runs_as_it_is(runs):
    done, report, _ = runs["compiled"]
    assert done.returncode == 0
    (warning,) = report["warnings"]
    assert warning.startswith("in the rehearsal: torch.compile at compiled.py:7 was not compiled")
    assert said(report, "SYNC001") == [("f(loss.detach()); loss.item()", "rehearsal", "none")]


@pytest.mark.full
def test_what_the_shadow_cannot_do_is_one_sentence_with_its_line(runs):
    done, report, _ = runs["parallel"]
    assert done.returncode == 0
    (warning,) = report["warnings"]
    assert warning == (
        "the GPU path could not be rehearsed: torch.nn.DataParallel: one GPU is simulated, on one "
        "thread at parallel.py:19"
    )
    assert status(report, "SYNC001") == "skipped"


@pytest.mark.full
def test_a_target_that_fails_only_on_the_gpu_path_is_said(runs):
    done, report, _ = runs["breaks_on_a_gpu"]
    assert (done.returncode, report["run"]["outcome"]) == (0, "completed")
    (warning,) = report["warnings"]
    assert warning.endswith(
        "it ended after 0 steps (AssertionError: no kernel for this card at breaks_on_a_gpu.py:19)"
    )


def test_memory_limit_raises_the_real_error_and_keeps_a_snapshot(runs):
    done, report, out = runs["rehearsed_hungry"]
    assert (done.returncode, report["run"]["outcome"]) == (3, "oom")
    error = report["run"]["error"]
    assert error["type"] == "OutOfMemoryError"
    assert "CUDA out of memory. Tried to allocate 12.00 MiB" in error["message"]
    assert "total capacity of 164.00 MiB" in error["message"]
    assert error["site"]["text"] == "kept.append(torch.empty(3 << 20, device=device))"
    segments = load_plain(out / "recording" / "oom_snapshot.pickle")["segments"]
    blocks = [one for each in segments for one in each["blocks"] if one["size"] == 12 << 20]
    assert sum(block["state"] == "active_allocated" for block in blocks) >= 5
    assert any(block["frames"] and block["frames"][0]["name"] == "step" for block in blocks)


@pytest.mark.full
def test_running_out_of_memory_in_the_rehearsal_does_not_fail_the_audit(runs):
    done, report, _ = runs["hungry"]
    assert done.returncode == 0
    assert (report["run"]["outcome"], report["run"]["device"]) == ("completed", "cpu")
    (warning,) = report["warnings"]
    assert "runs out of memory" in warning
    assert "CUDA out of memory. Tried to allocate 12.00 MiB" in warning


@pytest.mark.parametrize(
    "name", [pytest.param("hungry", marks=pytest.mark.full), "rehearsed_hungry"]
)
def test_running_out_of_memory_is_explained_first(runs, name):
    _, report, _ = runs[name]
    first = report["findings"][0]
    found = [first[key] for key in ("code", "severity", "seen_on", "basis")]
    assert found == ["MEM015", "error", "snapshot", "estimated"]
    assert first["site"]["text"] == "kept.append(torch.empty(3 << 20, device=device))"
    assert "12 MiB were requested" in first["message"] and "real demand" in first["message"]
    facts = dict(first["facts"])
    holder = next(text for label, text in facts.items() if label.startswith(f"{name}.py"))
    assert "blocks" in holder and "kept to the end" in holder


@pytest.mark.full
def test_rehearse_alone(runs):
    done, report, _ = runs["rehearsed_portable"]
    assert done.returncode == 0, done.stderr
    assert report["run"]["device"] == "rehearse"
    assert status(report, "SYNC004") == "found"
    assert status(report, "DATA007") == "skipped"


@pytest.mark.full
def test_rehearse_alone_of_what_cannot_be_rehearsed(runs):
    done, _, out = runs["rehearsed_parallel"]
    assert done.returncode == 2
    assert "torch.nn.DataParallel" in done.stderr
    assert not out.exists()
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_rehearse_alone_of_what_ignores_the_gpu_is_no_clean_bill(runs):
    done, _, out = runs["rehearsed_cpu_only"]
    assert done.returncode == 2
    assert "put nothing on the CUDA device" in done.stderr
    assert not out.exists()


@pytest.mark.full
def test_where_each_warning_is_an_error_the_gpu_path_is_rehearsed(tmp_path, audit):
    """Modules of torch that the shadow imports warn while they are imported."""
    program = textwrap.dedent(TARGETS["gpu_only"])
    (tmp_path / "train.py").write_text(program)
    asked = "--device", "rehearse", "--steps", "8", "--out", "out", "--select", "SYNC"
    done = audit("run", "train.py:step", *asked, cwd=tmp_path, PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [each["code"] for each in report["findings"]] == ["SYNC001"]
    assert not [said for said in report["warnings"] if "probe" in said]


@pytest.mark.full
def test_an_evaluation_that_only_the_rehearsal_reaches(tmp_path, audit):
    """Its 51 steps see twice what each 25th step does; the CPU's diagnostic pass has 20."""
    more = """
        steps.append(0)
        if len(steps) % 25 == 0:
            model.eval()
            for _ in range(4):
                model(x).sum().item()
            model.train()
    """
    program = BODY.format(
        device=PORTABLE + "\n    steps = []", more=textwrap.dedent(more).replace("\n", "\n        ")
    )
    (tmp_path / "train.py").write_text(textwrap.dedent(program))
    asked = "--steps", "20", "--out", "out", "--select", "GRAPH003"
    done = audit("run", "train.py:step", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert said(report, "GRAPH003") == [("model(x).sum().item()", "rehearsal", "measured")]
