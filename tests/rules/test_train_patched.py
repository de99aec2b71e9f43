"""Programs that a patch of TRAIN001, TRAIN002, TRAIN004, TRAIN006 or WASTE006 was applied to have no
finding.
"""

import functools

import pytest
from auditor.rules.train.losses import ActivationAppliedTwice, PaddingTrained, SilentBroadcast
from auditor.rules.train.orders import SortedByClass
from auditor.rules.waste.wasting import PaddingComputed

from auditor.patch import apply_edits
from tests.inprocess import judge
from tests.rules.test_rules import load

COLUMN_TARGET = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)

def step():
    x = torch.randn(16, 4)
    model.zero_grad()
    F.mse_loss(model(x), x.sum(1)).backward()
"""
SHARES = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Linear(4, 5)

def step():
    x = torch.randn(16, 4)
    model.zero_grad()
    F.cross_entropy(model(x).softmax(-1), (x.sum(1) > 0).long()).backward()
"""
NO_LOGARITHM = SHARES.replace("cross_entropy", "nll_loss").replace(
    "model(x).softmax(-1)", "F.softmax(model(x), dim=-1)"
)
PADDED_TOKENS = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9))

def step():
    tokens = torch.randint(1, 8, (4, 12))
    for row, length in enumerate((12, 3, 6, 2)):
        tokens[row, length:] = 8
    pad_mask = tokens == 8
    model.zero_grad()
    F.cross_entropy(
        model(tokens).transpose(1, 2),
        tokens,
    ).backward()
    return pad_mask
"""
SORTED = """
import itertools
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(3, 4)
data = TensorDataset(torch.randn(64, 3), torch.arange(64) // 16)
loader = DataLoader(data, batch_size=8, shuffle=False)
batches = itertools.chain.from_iterable(loader for _ in itertools.count())

def step():
    x, y = next(batches)
    torch.nn.functional.cross_entropy(model(x), y).backward()
"""

WIDE = """
import itertools
import torch
from torch.utils.data import DataLoader

TEXTS = [torch.arange(1, 5 + number * 7 % 13) for number in range(64)]

def tokenizer(rows, padding, max_length):
    width = max_length if padding == "max_length" else max(map(len, rows))
    return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])

def collate(rows):
    return tokenizer(rows, padding="max_length", max_length=64)

model = torch.nn.Sequential(torch.nn.Embedding(90, 8), torch.nn.Linear(8, 90))
loader = DataLoader(TEXTS, 8, collate_fn=collate)
batches = itertools.chain.from_iterable(loader for _ in itertools.count())

def step():
    tokens = next(batches)
    out = model(tokens[:, :-1]).transpose(1, 2)
    torch.nn.functional.cross_entropy(out, tokens[:, 1:], ignore_index=0).backward()
"""


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (SilentBroadcast, COLUMN_TARGET),
        (ActivationAppliedTwice, SHARES),
        (ActivationAppliedTwice, NO_LOGARITHM),
        (PaddingTrained, PADDED_TOKENS),
        (SortedByClass, SORTED),
        (PaddingComputed, WIDE),
    ],
    ids=["column", "softmax", "logarithm", "padding", "order", "width"],
)
def test_a_patched_program_has_no_finding(tmp_path, rule, text):
    (before,) = found(tmp_path / "broken", rule, text)
    edits = list(before.remedy.edits)
    assert edits
    assert found(tmp_path / "patched", rule, apply_edits(text.encode(), edits).decode()) == []


def found(folder, rule, text):
    file = folder.with_suffix(".py")
    file.write_text(text)
    make = functools.partial(lambda path: load(path).step, file)
    findings, (verdict,) = judge(folder, make, (rule,), roots=[file], steps=4)
    assert verdict.status == ("found" if findings else "clean")
    return findings


ASKED = 'tokenizer(rows, padding="max_length", max_length=64)'


@pytest.mark.parametrize(
    "other",
    [
        WIDE.replace(ASKED, f"wide(rows)\n\ndef wide(rows):\n    return {ASKED}"),
        WIDE.replace(ASKED, ASKED.replace('"max_length"', "WIDTH")).replace(
            "TEXTS", 'WIDTH = "max_length"\nTEXTS', 1
        ),
        WIDE.replace(ASKED, f"({ASKED}, {ASKED})[0]"),
    ],
    ids=["another function", "a name", "twice"],
)
def test_a_width_is_patched_only_in_the_collate_function_s_own_call(tmp_path, other):
    (before,) = found(tmp_path / "broken", PaddingComputed, other)
    assert not before.remedy.edits


TWO_LOSSES = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
embed, lstm, head = nn.Embedding(9, 4, padding_idx=0), nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)
other = nn.Linear(3, 1)

def step():
    tokens = torch.randint(1, 9, (4, 8))
    for row, length in enumerate((3, 5, 6, 8)):
        tokens[row, length:] = 0
    _, (last, _) = lstm(embed(tokens))
    second = F.cross_entropy(head(last[-1]), torch.randint(0, 2, (4,)))
    other(torch.randn(4, 3)).square().mean().backward()
    second.backward()
"""


def test_what_a_first_backward_showed_is_not_counted_again_by_the_second(tmp_path):
    (finding,) = found(tmp_path / "two", PaddingTrained, TWO_LOSSES)
    assert "lstm(embed(tokens))" in finding.site.text
    assert finding.per_step == 1.0
