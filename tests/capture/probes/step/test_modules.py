"""The step by module: whose time, bytes and operations, and what it does per second."""

import gc

import pytest

from auditor.capture.probes.step.modules import ModulesProbe
from auditor.evidence.recorded.by_module import by_module
from auditor.evidence.table import Evidence
from auditor.model.devices import CPU, CUDA
from auditor.recordings.folder import Recording, write_manifest
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import StepRow
from reports.modules import every
from tests.capture.drive import Drive, line_of, load

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 32))
    def forward(self, x):  # forward
        return x + self.wide(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.big = nn.Linear(32, 4096)
    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.big(x)  # big

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(64, 64, dtype=torch.long)).sum().backward()
    optimizer.step()

columns, head = nn.Embedding(40, 32), nn.Linear(64 * 32, 1)

def tabular():
    head(columns(torch.ones(64, 64, dtype=torch.long)).flatten(1)).sum().backward()

def bare():
    w = torch.ones(8, 8, requires_grad=True)
    (w @ w).sum().backward()

def again():
    x = torch.ones(64, 32, requires_grad=True)
    checkpoint(model.blocks[0], x, use_reentrant=False).sum().backward()
"""


def found(tmp_path, name, device=None, kind=CPU):
    """What two steps in each pass of the probe come to; a timed step takes 10 ms."""
    gc.collect()  # models of other tests
    with Drive(tmp_path, ModulesProbe) as drive:
        drive.context.device = kind
        user = load(tmp_path, PROGRAM)
        for each in ("loud", "numbers"):
            drive.run(each, getattr(user, name), 3)
        assert drive.warnings == []
        drive.writer.add(LoaderRow(loader=0, batch_size=64))
        for n in range(2):
            drive.writer.add(BatchRow(pass_name="quiet", step=n, loader=0, n=1))
            drive.writer.add(StepRow(pass_name="quiet", step=n, us=10_000.0))
    more = {"device": "cuda", "environment": {"device": device}} if device else {}
    write_manifest(
        drive.folder, {"schema": "audit-recording/1", "cwd": str(drive.folder.parent), **more}
    )
    return by_module(Evidence(Recording(drive.folder))), user


def test_the_tree_has_lines_shares_bytes_operations_and_rates(tmp_path):
    made, user = found(tmp_path, "step")
    uses = {each.path: each for each in every(made.modules)}
    assert set(uses) == {
        *("Net", "Net.words", "Net.big", "Net.blocks.0-2", "Net.blocks.0-2.wide"),
        *(f"Net.blocks.0-2.wide.{n}" for n in range(3)),
    }
    net, big, block = uses["Net"], uses["Net.big"], uses["Net.blocks.0-2"]
    assert (big.kind, big.alike, big.site.line) == ("Linear", 1, line_of(user, "big"))
    assert (block.alike, block.site.line) == (3, line_of(user, "forward"))
    product = 2 * 4096 * 32 * 4096
    assert big.flops == 3 * product and block.flops == 3 * 3 * 2 * 2 * 4096 * 32 * 256
    assert net.flops == made.flops == big.flops + block.flops
    assert 0.0 < big.own < net.forward + net.backward < 1.0
    assert net.forward + net.backward == pytest.approx(sum(each.own for each in uses.values()))
    assert big.saved_bytes == 4 * 4096 * 32 and uses["Net.words"].saved_bytes == 8 * 4096
    assert made.samples_per_s == 6400.0 and made.tokens_per_s == 409_600.0
    assert made.flops_per_s == made.flops * 100 and made.peak is None


def test_ids_that_become_one_row_are_no_tokens(tmp_path):
    made, _ = found(tmp_path, "tabular")
    assert made.samples_per_s == 6400.0 and made.tokens_per_s is None


@pytest.mark.parametrize(
    ("name", "peak"), [("NVIDIA H200", 67e12), ("NVIDIA A10", 31.2e12), ("NVIDIA A10G", None)]
)
def test_a_share_of_the_peak_is_that_of_a_gpu_in_the_table(tmp_path, name, peak):
    made, _ = found(tmp_path, "step", name)
    assert made.peak == (None if peak is None else pytest.approx(made.flops_per_s / peak))


def test_what_is_computed_again_is_counted_where_it_is(tmp_path):
    made, _ = found(tmp_path, "again")
    flops = [each.flops for each in every(made.modules) if ".wide." in each.path]
    assert sorted(flops) == [0, *(n * 2 * 64 * 32 * 256 for n in (3, 4))]


def test_on_a_gpu_no_module_is_timed_and_shares_are_of_operations(tmp_path):
    made, _ = found(tmp_path, "step", "NVIDIA A10G", CUDA)
    big = next(each for each in every(made.modules) if each.path == "Net.big")
    assert not made.timed and big.saved_bytes == 4 * 4096 * 32
    assert big.own == big.forward + big.backward == pytest.approx(big.flops / made.flops)
