"""States of modules that are kept while an optimizer changes them."""

import pytest
import torch
from auditor.rules.ckpt.probes.kept_states import KeptStatesProbe
from torch import nn

from tests.capture.drive import Drive


def test_what_the_users_hook_raises_goes_on_and_later_states_are_seen(tmp_path):
    def hook(*_):
        raise KeyError("user")

    with Drive(tmp_path, KeptStatesProbe) as drive, drive.running("loud"):
        model = nn.Linear(4, 4)
        handle = model.register_state_dict_pre_hook(hook)
        with pytest.raises(KeyError):
            model.state_dict()
        handle.remove()
        assert not drive.probes[0]._inside
        assert isinstance(model.state_dict()["weight"], torch.Tensor)


def test_states_without_plain_values_are_left_alone(tmp_path):
    with Drive(tmp_path, KeptStatesProbe) as drive, drive.running("loud"):
        lazy, meta = nn.LazyLinear(4), nn.Linear(4, 4, device="meta")
        kept = [lazy.state_dict(), meta.state_dict()]
        meta.load_state_dict(kept[1])
        lazy(torch.ones(1, 3))
    assert drive.rows("states") == [] and drive.warnings == []
