"""What device memory is for: in a rehearsal, and on addresses that are used again."""

from pathlib import Path
from types import SimpleNamespace

import torch
from auditor.rules.mem.peaks import PeakHolders
from torch import nn

from auditor.evidence.snapshot.state_at import (
    EARLIER,
    KEPT,
    NAMES,
    OF_STEP,
    WORKSPACE,
    LiveBlock,
    Owners,
    by_category,
)
from auditor.evidence.table import Evidence
from auditor.recordings.schema.sync import OwnerRow
from tests.inprocess import record

MIB = 2**20


def rehearsal(folder, make):
    return record(folder, make, ("reads",), roots=[Path(__file__)], steps=5, device="rehearse")


def categories(folder, make):
    recording = rehearsal(folder, make)
    (peak,) = Evidence(recording).get(PeakHolders).devices
    return {each.name: each.size for each in peak.categories}, peak


def trainer(optimizer=torch.optim.Adam, keep=None):
    def make():
        weight = nn.Parameter(torch.zeros(1024, 1024, device="cuda"))  # 4 MiB
        steps = optimizer([weight])
        x = torch.ones(256, 1024, device="cuda")  # 1 MiB

        def step():
            hidden = torch.relu(x @ weight) + 1  # 1 MiB each
            loss = (hidden @ weight).square().mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            if keep is not None:
                keep.append(torch.ones(2 * MIB, dtype=torch.uint8, device="cuda"))

        return step

    return make


def test_parameters_gradients_and_state_of_adam_to_the_byte(tmp_path):
    found, peak = categories(tmp_path, trainer())
    assert found["parameters"] == 4 * MIB and found["gradients"] == 4 * MIB
    assert found["optimizer state"] == 8 * MIB
    assert found[EARLIER] == 1 * MIB  # the input, made once
    assert found[NAMES[WORKSPACE]] == 2 * 32 * MIB  # two threads on an H200
    assert sum(found.values()) == peak.allocated


def test_plain_sgd_has_no_state(tmp_path):
    found, _ = categories(tmp_path, trainer(torch.optim.SGD))
    assert found["parameters"] == 4 * MIB and "optimizer state" not in found


def test_what_the_program_keeps_over_steps_is_told_from_what_a_step_makes(tmp_path):
    found, _ = categories(tmp_path, trainer(keep=[]))
    assert found[KEPT] == 4 * 2 * MIB  # at the peak the last of five steps has not made its own
    assert found[OF_STEP] >= 1 * MIB


class Marks:
    """A recording with an ``owners`` part, of a run that has no second one up to its error."""

    recording = SimpleNamespace(to_oom=None)

    def __init__(self, *rows):
        self._rows = [
            OwnerRow(what=what, time_us=at, addresses=addresses) for what, at, *addresses in rows
        ]

    def has(self, part):
        return part == "owners"

    def rows(self, kind):
        return self._rows


def test_blocks_from_before_the_history_belong_to_whom_they_were_seen_with():
    owners = Owners(Marks(("step", 5), ("parameter", 20, 8)))
    trace = [{"action": "alloc", "addr": 64}]
    blocks = [
        LiveBlock(8, 512, -1, True, ()),
        LiveBlock(16, 512, -1, True, ()),
        LiveBlock(64, 512, 0, True, ()),
    ]
    wanted = {"parameters", EARLIER, OF_STEP}
    assert {each.name for each in by_category(blocks, trace, 0, [10], owners)} == wanted
    assert by_category(blocks, trace, 0, [], owners) == ()  # torch before 2.3 wrote no times
