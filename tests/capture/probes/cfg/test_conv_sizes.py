"""The probe of sizes that convolutions have not met before."""

import pytest
import torch
from auditor.rules.cfg.probes.float64_ops import ConvSizesProbe

from auditor.capture.shadow import shadow_cuda
from tests.capture.drive import watched

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real GPU is no shadow")

SOURCE = """import torch
from torch.nn import functional as F

model = torch.nn.Conv2d(1, 1, 3).cuda()
kernel = torch.ones(1, 1, 3, device="cuda")
sizes = iter([8, 8, 9, 9, 10])

def step():
    model(torch.ones(1, 1, next(sizes), 8, device="cuda"))      # module
    F.conv1d(torch.ones(1, 1, 8, device="cuda"), kernel)
    F.conv1d(torch.ones(1, 1, 8), kernel.cpu())                 # of the host
"""


@pytest.mark.parametrize(("benchmark", "enabled"), [(True, True), (True, False), (False, True)])
def test_benchmark_mode_is_told(tmp_path, monkeypatch, benchmark, enabled):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    monkeypatch.setattr(torch.backends.cudnn, "enabled", enabled)
    with shadow_cuda():
        user, drive = watched(tmp_path, SOURCE, ConvSizesProbe, steps=1)
        (row,) = drive.rows("conv_sizes")
    assert row["benchmark"] is (benchmark and enabled)
