import re
import threading
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch

from auditor.capture.probes.sync import reads, reads_log
from auditor.capture.probes.sync.reads import OPERATORS, ReadsProbe
from auditor.model.devices import CUDA
from tests.capture import drive as driving
from tests.capture.drive import HAS_KERNELS, NO_KERNELS, Drive, line_of, load, watched

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def host_in_the_place_of_a_gpu(monkeypatch):
    """Kernels and tensors of the host are watched as those of a GPU are, of which there is none."""
    monkeypatch.setattr(reads, "KEY", "CPU")
    waits = lambda args: bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_cpu
    monkeypatch.setattr(reads, "_waits", waits)
    monkeypatch.setattr(driving, "CPU", CUDA)


ZOO = Path(__file__).with_name("sync_zoo.py")
METHODS = (
    "cpu to numpy tolist copy_ item __bool__ __getitem__ __setitem__ nonzero unique __repr__"
).split()


def zoo_module(tmp_path: Path) -> ModuleType:
    return load(tmp_path, ZOO.read_text())


def marks(module: ModuleType) -> Counter[tuple[int, str]]:
    """(line, kind) -> times, of the zoo's marked lines; transfers to the device are left out."""
    found: Counter[tuple[int, str]] = Counter()
    for number, line in enumerate(Path(module.__file__).read_text().splitlines(), 1):
        mark = re.search(r"  #: ([a-z0-9_, ]+?)(?: x(\d+))?$", line)
        for kind in mark[1].split(", ") if mark and mark[1] != "h2d" else ():
            found[number, kind] += int(mark[2] or 1)
    return found


def run_zoo(drive: Drive, module: ModuleType, pass_name: str) -> list[dict]:
    """Each snippet is one step; returns the rows, with the snippet's name."""
    names = [snippet.__name__ for snippet in module.SNIPPETS]
    with drive.running(pass_name):
        for snippet in module.SNIPPETS:
            lab = module.Lab(torch.device("cpu"))
            drive.step(lambda: snippet(lab))
    rows = drive.rows("reads")
    for row in rows:
        row["snippet"] = names[row["step"]]
    return rows


def program(tmp_path, source):
    return load(tmp_path, "import numpy as np\nimport torch\nimport torch.nn as nn\n" + source)


def reads_of(tmp_path: Path, source: str, steps: int = 1) -> tuple[ModuleType, list[dict]]:
    module, drive = watched(tmp_path, source, ReadsProbe, steps=steps, load=program)
    assert not drive.warnings
    return module, drive.rows("reads")


def torch_as_it_is() -> dict[str, object]:
    state: dict[str, object] = {name: vars(torch.Tensor).get(name) for name in METHODS}
    state["_str"] = torch._tensor_str._str
    state["where"], state["unique"] = torch.where, torch.unique
    for name in OPERATORS:
        state[name] = torch._C._dispatch_dump(f"aten::{name}")
    return state


# ---- what a row says


def test_read_inside_the_loader(tmp_path):
    module, rows = reads_of(
        tmp_path,
        """
from torch.utils.data import DataLoader
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.tensor(i).item()         # dataset
def collate(batch):
    return torch.tensor(batch), max(batch) + torch.ones(1).item()   # collate
def step():
    for x, _ in DataLoader(Data(), 2, shuffle=True, collate_fn=collate):
        x.sum().item()                                              # outside
""",
    )
    assert {(row["at_line"], row["lib"]) for row in rows} >= {
        (line_of(module, "dataset"), "loader"),
        (line_of(module, "collate"), "loader"),
        (line_of(module, "outside"), ""),
    }


def test_nothing_outside_of_steps_nor_in_other_threads(tmp_path):
    with Drive(tmp_path, ReadsProbe) as drive:
        module = program(
            tmp_path, "x = torch.ones(())\ndef step():\n    x.item(); x.cpu(); x.tolist()\n"
        )

        def in_a_thread() -> None:
            thread = threading.Thread(target=module.step)
            thread.start()
            thread.join()

        with drive.running("loud"):
            module.step()
            drive.step(in_a_thread)
            module.step()
    assert drive.rows("reads") == []


# ---- torch's own affairs


def test_workers_of_the_loader_are_left_alone(tmp_path):
    _, rows = reads_of(
        tmp_path,
        """
from torch.utils.data import DataLoader
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor(i).item()
def step():
    assert sum(x.sum().tolist() for x in DataLoader(Data(), 4, num_workers=2)) == 28   # outside
""",
    )
    assert [row["n"] for row in rows if row["lib"]] == [1], "the seed, and no item of a worker's"


def test_compiled_code_runs_and_its_graph_breaks_are_seen(tmp_path):
    before = torch._dynamo.config.suppress_errors
    module, rows = reads_of(
        tmp_path,
        """
@torch.compile(backend="eager")
def f(x):
    y = x * 2
    z = y.to("cpu").sum() + y.sum().item()    # inside
    return z + 1
x = torch.ones(3)
def step():
    assert f(x).item() == 13                  # outside
""",
        steps=3,
    )
    assert torch._dynamo.config.suppress_errors == before
    seen = Counter((row["at_line"], row["step"]) for row in rows if row["kind"] == "item")
    assert all(seen[line_of(module, "outside"), step] == 1 for step in range(3))
    assert {line for line, _ in seen} <= {line_of(module, "inside"), line_of(module, "outside")}


# ---- nothing left behind


def test_a_start_that_fails_leaves_nothing(tmp_path, monkeypatch):
    before = torch_as_it_is()
    with Drive(tmp_path, ReadsProbe) as drive:
        monkeypatch.setattr(
            "auditor.capture.probes.sync.reads.watch_reads", lambda log, patches: 1 / 0
        )
        monkeypatch.setattr(
            "auditor.capture.probes.sync.reads.override", lambda log, patches: False
        )
        with pytest.raises(ZeroDivisionError):
            drive.probes[0].start()
        assert torch_as_it_is() == before


def test_our_own_error_costs_one_warning_and_not_the_step(tmp_path, monkeypatch):
    def broken(*args: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(reads_log.ReadLog, "place", broken)
    module, drive = watched(
        tmp_path,
        "x = torch.ones(())\ndef step():\n    assert x.item() == 1.0 and x.cpu().numpy() == 1.0\n",
        ReadsProbe,
        steps=3,
        load=program,
    )
    assert len(drive.warnings) == 1 and "KeyError" in drive.warnings[0]


def test_tables_by_the_original_method_find_the_patched_one(tmp_path):
    table = {torch.Tensor.to: "to", torch.Tensor.cpu: "cpu"}
    original = torch.Tensor.to
    with Drive(tmp_path, ReadsProbe) as drive, drive.running("loud"):
        assert table[torch.Tensor.to] == "to" and torch.Tensor.cpu in table
        assert torch.Tensor.to == original
        assert (
            torch.Tensor.to.__name__ == "to"
            and torch.Tensor.to(torch.ones(1), torch.float64).dtype == torch.float64
        )


def test_subclasses_keep_their_own_methods(tmp_path):
    _, rows = reads_of(
        tmp_path,
        """
class Mine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
x = torch.ones(2).as_subclass(Mine)
def step():
    assert type(x.cpu()) is Mine
    assert x.sum().item() == 2
    assert x.tolist() == [1, 1]
""",
    )
    assert Counter({row["kind"]: row["n"] for row in rows}) == Counter(cpu=1, item=1, tolist=1)


# ---- an older torch


@pytest.mark.parametrize("breakage", ["absent", "broken"])
def test_without_kernel_overrides_methods_are_patched(tmp_path, monkeypatch, breakage):
    if breakage == "absent":
        monkeypatch.delattr(torch.library, "get_kernel", raising=False)
    else:
        monkeypatch.setattr(torch.library, "get_kernel", lambda op, key: 1 / 0, raising=False)
    before = torch_as_it_is()
    with Drive(tmp_path, ReadsProbe) as drive:
        module = zoo_module(tmp_path)
        rows = run_zoo(drive, module, "loud")
        assert torch_as_it_is() == before
    assert sum(NO_KERNELS in text for text in drive.warnings) == HAS_KERNELS
    found = Counter((row["at_line"], row["kind"]) for row in rows)
    expected = marks(module)
    # Reads by a mask are lost: patching __getitem__ would make every tensor a sequence to C.
    by_mask = {key for key in expected if key[1] in ("mask_index", "mask_put")}
    assert len(set(expected) & set(found)) >= 0.9 * len(set(expected) - by_mask), sorted(
        set(expected) - set(found)
    )


@pytest.mark.parametrize(
    "line",
    [
        "print(x)",
        "x.tolist()",
        "str(x)",
        "np.asarray(x)",
        "x[x > 0]",
        "torch.unique(x, dim=0)",
        "x.cpu().numpy()",
        "x.cpu().tolist()",
    ],
)
def test_one_read_for_one_call(tmp_path, line):
    _, rows = reads_of(tmp_path, f"x = torch.randn(20, 20)\ndef step():\n    {line}\n")
    assert [row["n"] for row in rows] == [1]


def test_statement_is_the_innermost_one(tmp_path):
    module = load(
        tmp_path,
        "def f(x):\n    if (x and\n            x):\n        y = (1,\n             2)\n        "
        "return y\n",
    )
    extents = [reads_log.statement(module.__file__, line) for line in range(1, 7)]
    assert extents == [(1, 1), (2, 3), (2, 3), (4, 5), (4, 5), (6, 6)]
    assert reads_log.statement("<stdin>", 3) == (3, 3)
