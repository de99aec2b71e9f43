"""Steps of an optimizer on modules that stayed in eval mode."""

import pytest
from auditor.rules.cfg.probes import train_mode_forwards
from auditor.rules.cfg.probes.train_mode_forwards import EvalModeStepsProbe
from torch import nn

from tests.capture.drive import Drive


@pytest.mark.parametrize(
    ("module", "differs"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.0), False),
        (nn.BatchNorm2d(3), True),
        (nn.BatchNorm2d(3, track_running_stats=False), False),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.1), True),
        (nn.LSTM(2, 2, num_layers=2), False),
        (nn.MultiheadAttention(4, 2, dropout=0.1), True),
        (nn.MultiheadAttention(4, 2), False),
        (nn.LayerNorm(3), False),
    ],
)
def test_what_acts_otherwise(module, differs):
    assert train_mode_forwards.differs(module) == differs


def test_what_the_users_train_raises_goes_on_and_later_changes_are_seen(tmp_path):
    class Odd(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            raise KeyError(mode)

    with Drive(tmp_path, EvalModeStepsProbe) as drive, drive.running("loud"):
        odd, model = nn.Sequential(Odd(nn.Dropout(0.5))), nn.Sequential(nn.Dropout(0.5))
        with pytest.raises(KeyError):
            odd.eval()
        assert not model.eval()[0].training
        assert not drive.probes[0]._changing
