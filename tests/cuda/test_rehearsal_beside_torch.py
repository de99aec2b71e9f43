"""The rehearsal's peak beside that of torch's own CUDA code, for one program."""

import pytest

from tests.cuda.rehearsal_beside_torch import alike, measure


@pytest.mark.parametrize("program", ["small"])
def test_a_rehearsal_takes_what_torch_takes(program):
    real, rehearsed = measure("real", program), measure("rehearsed", program)
    assert rehearsed.workspaces == 2, "of the program's thread and of autograd's"
    assert abs(rehearsed.peak_allocated / real.peak_allocated - 1) < 0.001
    assert abs(rehearsed.peak_reserved / real.peak_reserved - 1) < 0.01
    assert all(share > 0.8 for share in alike(real, rehearsed))
