"""The probe of sizes that convolutions have not met before."""

import pytest
import torch
from auditor.rules.cfg.probes.float64_ops import ConvSizesProbe

from auditor.capture.shadow import shadow_cuda
from tests.capture.drive import Drive, load, watched

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


def test_a_stride_of_its_own_is_another_size(tmp_path):
    source = SOURCE.replace("sizes = iter([8, 8, 9, 9, 10])", "sizes = iter([8, 8, 8])")
    with shadow_cuda():
        user = load(tmp_path, source)
        with Drive(tmp_path, ConvSizesProbe) as drive:
            drive.run("loud", user.step, steps=1)
            user.model.stride = (2, 2)
            drive.run("loud", user.step, steps=2)
            rows = drive.rows("conv_sizes")
    assert [row["new"] for row in rows] == [2, 1, 0]
