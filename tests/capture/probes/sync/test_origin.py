from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import overrides
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from auditor.capture.probes.sync import origin_marks
from auditor.capture.probes.sync.origin import OriginProbe
from auditor.capture.probes.sync.origin_marks import DERIVED, HOST, Origins
from auditor.capture.probes.sync.reads import ReadsProbe
from tests.capture.drive import Drive, line_of, load
from tests.capture.probes.sync.test_reads import (
    marks,
    run_zoo,
    spike_table,
    torch_as_it_is,
    zoo_module,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
device = torch.device("cpu")
losses = []
"""


def program(tmp_path: Path, source: str):
    return load(tmp_path, HEAD.lstrip("\n") + source.lstrip("\n"))


def both(tmp_path: Path, source: str, steps: int = 2):
    """Runs the program's step in an origin pass; returns the module, lines with derived reads,
    lines with host reads.
    """
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = program(tmp_path, source)
        drive.run("origin", module.step, steps)
    assert not drive.warnings
    rows = drive.rows("reads")
    assert all(0 <= row["derived"] <= row["n"] for row in rows)
    return (
        module,
        {row["at_line"] for row in rows if row["derived"]},
        {row["at_line"] for row in rows if not row["derived"]},
    )


def modes_as_they_are() -> tuple[object, ...]:
    return (
        overrides._get_current_function_mode_stack(),
        _python_dispatch._get_current_dispatch_mode_stack(),
        dict(module_hooks._global_forward_pre_hooks),
        dict(optimizer_hooks._global_optimizer_pre_hooks),
        origin_marks.active(),
    )


# ---- the zoo


def test_zoo_every_wait_and_nothing_else(tmp_path: Path) -> None:
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = zoo_module(tmp_path)
        rows = run_zoo(drive, module, "origin")
    assert not drive.warnings
    found = Counter[tuple[int, str]]()
    for row in rows:
        if row["derived"]:
            found[row["at_line"], row["kind"]] += row["derived"]
    seen, planted, table = spike_table(module, found)
    print("\n".join(table))
    assert (planted, seen) == (36, 34)
    assert found == marks(module)


def test_places_are_the_same_in_both_passes(tmp_path: Path) -> None:
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = zoo_module(tmp_path)
        loud = {(row["at"], row["kind"]) for row in run_zoo(drive, module, "loud")}
        run_zoo(drive, module, "origin")
    origin = {
        (row["at"], row["kind"])
        for row in drive.rows("reads")
        if row["pass"] == "origin" and row["derived"]
    }
    assert {kind for _, kind in origin - loud} == {"to_cpu"} and len(
        origin - loud
    ) == 1  # the copy_ into a host tensor


# ---- where a value comes from


CASES = {
    "data kept on the device": (
        "data = torch.randn(64, 4)\nnet = nn.Linear(4, 1)\n",
        """
    batch = data[torch.randint(0, 64, (8,))]
    net(batch).mean().item()      # derived
""",
    ),
    "a default device": (
        "",
        """
    with torch.device(device):
        torch.ones(3).sum().item()      # derived
    torch.ones(3).sum().item()          # host
""",
    ),
    "an optimizer over bare tensors": (
        "w = torch.ones(3, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n",
        """
    (w * w).sum().backward()
    opt.step()
    w.data.norm().item()      # derived
    w.grad.norm().item()      # derived
""",
    ),
    "in place": (
        "net = nn.Linear(4, 1)\n",
        """
    total = torch.zeros(1)
    total.sum().item()           # host
    total += net(torch.randn(4).to(device)).detach()
    total.item()                 # derived
""",
    ),
    "foreach": (
        "ps = [nn.Parameter(torch.ones(2)) for _ in range(3)]\n",
        """
    norms = torch._foreach_norm([p.detach() for p in ps])
    torch.stack(norms).sum().item()      # derived
""",
    ),
    "views of the host and of the device": (
        "",
        """
    x = torch.randn(4, 4)
    x[0].tolist()                        # host
    y = x.to(device)
    x.view(16)[1:].tolist()              # host
    y.t()[0].view(4).tolist()            # derived
""",
    ),
    "after the host copy": (
        "net = nn.Linear(4, 1)\n",
        """
    out = net(torch.randn(2, 4).to(device)).detach()
    kept = out.cpu()                     # derived
    (kept * 2).sum().item()              # host
    kept.to(device).sum().item()         # derived
""",
    ),
    "numpy and back": (
        "net = nn.Linear(4, 1)\n",
        """
    n = net.weight.detach().cpu().numpy()        # derived
    torch.from_numpy(n).sum().item()             # host
    torch.as_tensor(n, device=device).sum().item()  # derived
""",
    ),
    "a compiled module": (
        (
            "net = torch.compile(nn.Linear(4, 1), backend='eager')\nfor _ in range(2): "
            "net(torch.ones(2, 4))\n"
        ),
        """
    with torch.no_grad():
        out = net(torch.randn(2, 4))
    out.sum().item()             # derived
""",
    ),
    "arguments that are the host's": (
        "net = nn.Linear(4, 4)\n",
        """
    out = net(torch.randn(2, 4).to(device)).detach()
    out.masked_fill(out > 0, torch.tensor(0.0))              # host
    out.masked_fill(out > 0, out.mean())                     # derived
""",
    ),
    "a buffer": (
        "norm = nn.BatchNorm1d(4)\n",
        """
    norm(torch.randn(8, 4).to(device))
    norm.running_mean.sum().item()       # derived
    norm.num_batches_tracked.item()      # derived
""",
    ),
    "inside hooks and a recomputed part": (
        (
            "net = nn.Linear(4, 4)\ndef part(x):\n    if x.abs().max() > 9: pass  # derived\n    "
            "return net(x)\n"
        ),
        """
    x = torch.randn(2, 4).to(device).requires_grad_()
    checkpoint(part, x, use_reentrant=False).sum().backward()
""",
    ),
    "a recurrent net": (
        "rnn = nn.LSTM(4, 4, batch_first=True)\n",
        """
    lengths = torch.tensor([3, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 3, 4).to(device), lengths, batch_first=True)
    out, (h, c) = rnn(packed)            # host
    h.sum().item()                       # derived
    out.batch_sizes.tolist()             # host
    lengths.tolist()                     # host
""",
    ),
    "workers": (
        "loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.arange(8)), 4, num_workers=1)\n",
        """
    for x, y in loader:
        y.tolist()                               # host
        x = x.to(device)
        x.mean().item()                          # derived
""",
    ),
    "where another tensor lives": (
        "net = nn.Linear(4, 1)\n",
        """
    lengths = torch.tensor([1, 2])
    torch.arange(4, device=lengths.device).sum().item()          # host
    torch.arange(4, device=net.weight.device).sum().item()       # derived
    net.weight.detach().sum().to(lengths.device).item()          # host
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_where_a_value_comes_from(tmp_path: Path, case: str) -> None:
    before, body = CASES[case]
    module, derived, host = both(tmp_path, before + "def step():" + body)
    lines = Path(module.__file__).read_text().splitlines()
    assert derived == {number for number, line in enumerate(lines, 1) if line.endswith("# derived")}
    assert host - derived == {
        number for number, line in enumerate(lines, 1) if line.endswith("# host")
    }


# ---- the user's program is not changed


TRAINERS = {
    "amp": """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)).to(device)
opt = torch.optim.AdamW(net.parameters()); scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
def step():
    x = torch.randn(16, 4).to(device)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(x).float().pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt); scaler.update()
    losses.append(loss.detach().cpu().item())
""",
    "checkpoint and hooks": """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3)).to(device); head = nn.Linear(8, 1).to(device)
seen = []
net[0].register_forward_hook(lambda m, a, out: out * 1.5); head.weight.register_hook(lambda g: g * 0.5)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
def step():
    x = torch.randn(16, 4, requires_grad=True)
    loss = head(checkpoint(net, x.to(device), use_reentrant=False)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    assert x.grad is not None
    losses.append(loss.item())
""",
    "recurrent": """
net = nn.LSTM(4, 8, num_layers=2, dropout=0.2, batch_first=True).to(device); head = nn.Linear(8, 1).to(device)
opt = torch.optim.Adam([*net.parameters(), *head.parameters()])
def step():
    net.to(device)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 4).to(device), torch.tensor([5, 3, 2]), batch_first=True)
    out, _ = nn.utils.rnn.pad_packed_sequence(net(packed)[0], batch_first=True)
    loss = head(out).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(float(loss.detach().to("cpu").numpy()))
""",
    "loader": """
loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,))), 8, shuffle=True, num_workers=2)
net = nn.Linear(4, 3).to(device); opt = torch.optim.LBFGS(net.parameters(), max_iter=3)
def step():
    for x, y in loader:
        def closure():
            opt.zero_grad(); loss = F.cross_entropy(net(x.to(device)), y.to(device)); loss.backward(); return loss
        losses.append(opt.step(closure).item())
""",
    "compiled": """
net = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), backend="eager"); opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step():
    loss = net(torch.randn(8, 4).to(device)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
step()
""",
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_losses_are_bit_identical(tmp_path: Path, trainer: str) -> None:
    plain = program(tmp_path, TRAINERS[trainer])
    for _ in range(3):
        plain.step()
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        watched = program(tmp_path, TRAINERS[trainer])
        drive.run("origin", watched.step, 3)
    assert not drive.warnings
    assert len(plain.losses) >= 3 and plain.losses == watched.losses
    line = 1 + next(
        n
        for n, text in enumerate(Path(watched.__file__).read_text().splitlines())
        if "losses.append" in text
    )
    assert {row["at_line"] for row in drive.rows("reads") if row["derived"]} >= {line}


def test_parameters_stay_the_storages_that_they_are(tmp_path: Path) -> None:
    source = """
net = nn.Linear(2, 2)
pointers = [p.data_ptr() for p in net.parameters()]
def step():
    net.to(device); net.cpu(); net.to("cpu")
    assert pointers == [p.data_ptr() for p in net.parameters()]
"""
    both(tmp_path, source)


def test_compiled_code_is_compiled_again_after_the_pass(tmp_path: Path) -> None:
    source = """
ran = []
def backend(graph, inputs):
    def run(*args):
        ran.append(1)
        return graph.forward(*args)
    return run
net = torch.compile(nn.Linear(4, 1), backend=backend)
x = torch.ones(2, 4)
net(x)
def step():
    net(x).sum().item()
"""
    module, _, _ = both(tmp_path, source)
    during = len(module.ran)
    module.net(module.x)
    assert during == 1 and len(module.ran) == 2


def test_a_compiled_module_does_not_warn_of_our_hook(tmp_path: Path) -> None:
    source = """
import warnings
net = torch.compile(nn.Linear(4, 1), backend="eager")
def step():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(torch.ones(2, 4)).sum().item()      # derived
"""
    module, derived, _ = both(tmp_path, source)
    assert derived == {line_of(module, "derived")}


# ---- nothing left behind, nothing broken


def test_everything_is_put_back_also_after_an_error(tmp_path: Path) -> None:
    before, torch_before = modes_as_they_are(), torch_as_it_is()
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = program(
            tmp_path,
            "def step():\n    torch.ones(3).to(device).sum().item()\n    raise ValueError\n",
        )
        with pytest.raises(ValueError):
            drive.run("origin", module.step, 1)
        assert modes_as_they_are() == before and torch_as_it_is() == torch_before
        drive.probes[1].stop()
    assert modes_as_they_are() == before
    assert [row["derived"] for row in drive.rows("reads")] == [1]


def test_a_mode_of_the_users_that_outlives_the_pass_stays(tmp_path: Path) -> None:
    class Functions(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    functions, operators = Functions(), Operators()
    with Drive(tmp_path, OriginProbe) as drive:
        with drive.running("origin"):
            functions.__enter__()
            operators.__enter__()
        assert overrides._get_current_function_mode_stack() == [functions]
        assert _python_dispatch._get_current_dispatch_mode_stack() == [operators]
        torch.ones(2) + 1
        assert functions.calls and operators.calls
        operators.__exit__(None, None, None)
        functions.__exit__(None, None, None)
    assert modes_as_they_are()[:2] == ([], [])


def test_our_own_error_costs_one_warning_and_not_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise KeyError("ours")

    for name in ("mark", "derived", "copied_to_device"):
        monkeypatch.setattr(Origins, name, broken)
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = program(
            tmp_path,
            "net = nn.Linear(3, 1)\ndef step():\n    "
            "losses.append(net(torch.ones(3).to(device)).item())\n",
        )
        drive.run("origin", module.step, 2)
    assert len(module.losses) == 2
    assert len(drive.warnings) == 2 and all(
        "KeyError" in text for text in drive.warnings
    )  # one for each probe


def test_an_error_of_the_users_is_his(tmp_path: Path) -> None:
    with Drive(tmp_path, ReadsProbe, OriginProbe) as drive:
        module = program(tmp_path, "def step():\n    torch.ones(2, 3) @ torch.ones(2, 3)\n")
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            drive.run("origin", module.step, 1)
    assert not drive.warnings


def test_marks_free_memory_and_are_forgotten() -> None:
    origins = Origins()
    big = torch.zeros(1000)
    origins.mark(big, DERIVED)
    assert (
        origins.derived(big)
        and origins.derived(big[3:].view(-1))
        and origins.state(torch.zeros(1000)) is None
    )
    origins.mark(big, HOST)
    assert not origins.derived(big) and len(origins) == 1
    addresses = set()
    for _ in range(
        50
    ):  # the marked address is not used again, so a new tensor cannot inherit the mark
        other = torch.zeros(1000)
        addresses.add(other.untyped_storage()._cdata)
        origins.mark(other, DERIVED)
        del other
    assert len(addresses) == 50
    del big
    gc.collect()
    origins.prune()
    assert len(origins) == 0


def test_tensors_without_storage_do_not_matter() -> None:
    origins = Origins()
    for tensor in (torch.eye(3).to_sparse(), torch.ones(2, device="meta")):
        origins.mark(tensor, DERIVED)
        origins.copied_to_host(tensor, tensor)
    assert origins.state(torch.eye(3).to_sparse()) is None


def test_line_of_the_marker_is_unique(tmp_path: Path) -> None:
    module = program(tmp_path, "x = 1  # here\n")
    assert line_of(module, "here") == len(HEAD.strip().splitlines()) + 1
