import io
import tempfile
from pathlib import Path

import torch
from torch import nn, save


def saved_on_every_other_step_by_an_imported_name():
    model, folder, count = nn.Linear(1024, 1024), Path(tempfile.mkdtemp()), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 1024)).mean().backward()
        if count[0] % 2 == 0:
            save(model.state_dict(), str(folder / f"{count[0]}.pt"))  # CKPT004

    return step


def packed_into_a_buffer():
    model = nn.Linear(1024, 1024)

    def step():
        model(torch.ones(4, 1024)).mean().backward()
        torch.save(model.state_dict(), io.BytesIO())  # CKPT004

    return step


def a_view_that_takes_its_archive_along():
    model, archive, count = nn.Linear(8, 1), torch.randn(600, 1024), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 8)).mean().backward()
        if count[0] == 4:
            torch.save({"model": model.state_dict(), "start": archive[-2:]}, io.BytesIO())  # CKPT004

    return step
