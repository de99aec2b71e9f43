"""Convolutions whose bias a batch norm behind them takes away."""

from __future__ import annotations

import pytest
from auditor.rules.cfg.cfg002_bias_before_norm import biased_before_norm

from auditor.evidence.source.files import Source

NET = """\
class Net(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
    def forward(self, x):
        return self.norm(self.conv(x))
"""


def found(text):
    return [(site.line, name) for site, name, _ in biased_before_norm(Source({"net.py": text}))]


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        ("Conv2d(3, 8, 3), BatchNorm2d(8)", ["Conv2d"]),
        ("nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), relu", ["Conv1d"]),
        ("Conv3d(3, 8, 3), SyncBatchNorm(8)", ["Conv3d"]),
        ("Conv2d(3, 8, 3), BatchNorm1d(8)", []),
        ("Conv2d(3, 8, 3), ReLU(), BatchNorm2d(8)", []),
        ("BatchNorm2d(8), Conv2d(3, 8, 3)", []),
        ("Conv2d(3, 8, 3), norm", []),
        ("conv, BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3, bias=True), BatchNorm2d(8)", ["Conv2d"]),
        ("Conv2d(3, 8, 3, bias=False), BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3, bias=1), BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3, bias=bias), BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3, **more), BatchNorm2d(8)", []),
        ("Conv2d(*sizes), BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3, 1, 0, 1, 1), BatchNorm2d(8)", ["Conv2d"]),
        ("Conv2d(3, 8, 3, 1, 0, 1, 1, False), BatchNorm2d(8)", []),
        ("Conv2d(3, 8, 3), BatchNorm2d(8), Conv2d(8, 8, 3), BatchNorm2d(8)", ["Conv2d"] * 2),
    ],
)
def test_neighbours_in_a_row(layers, names):
    assert [name for _, name in found(f"net = Sequential({layers})")] == names
    assert [name for _, name in found(f"net = [{layers}]")] == names
    assert found(f"net = other({layers})") == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (NET, [3]),
        (NET.replace("self.norm(self.conv(x))", "self.norm(self.conv(x)) + self.conv(x)"), []),
        (NET.replace("self.norm(self.conv(x))", "self.norm(self.conv(x), 1)"), []),
        (NET.replace("self.norm(self.conv(x))", "self.norm(conv(x))"), []),
        (NET.replace("self.norm(self.conv(x))", "net.norm(net.conv(x))"), []),
        (NET.replace("nn.BatchNorm2d(8)", "nn.LayerNorm(8)"), []),
        (NET.replace("nn.BatchNorm2d(8)", "norm"), []),
        (NET.replace("nn.Conv2d(3, 8, 3)", "conv"), []),
        (NET.replace("8, 3)", "8, 3, bias=False)"), []),
        (NET + NET, [3, 9]),
    ],
)
def test_attributes_of_a_class(text, lines):
    assert [line for line, _ in found(text)] == lines


def test_the_place_of_the_call():
    ((site, name, span),) = biased_before_norm(Source({"net.py": NET}))
    assert (site.file, site.text, name) == ("net.py", "self.conv = nn.Conv2d(3, 8, 3)", "Conv2d")
    assert (span.line, span.col, span.end_col) == (3, 20, 38)
