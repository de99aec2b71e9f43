import copy
import io
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn


def saved_once_in_many_steps():
    model, folder, count = nn.Linear(8, 1), Path(tempfile.mkdtemp()), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 8)).mean().backward()
        if count[0] % 100 == 9:
            torch.save(model.state_dict(), folder / "last.pt")

    return step


def written_by_a_thread():
    model, folder, writing = nn.Linear(8, 1), Path(tempfile.mkdtemp()), []

    def step():
        while writing:
            writing.pop().join()
        model(torch.ones(4, 8)).mean().backward()
        state = copy.deepcopy(model.state_dict())
        writing.append(threading.Thread(target=torch.save, args=(state, folder / "last.pt"), daemon=True))
        writing[0].start()

    return step


def small_beside_the_step():
    def step():
        torch.save({"step": 1}, io.BytesIO())
        time.sleep(0.1)

    return step


def state_kept_in_memory():
    model, kept = nn.Linear(8, 1), []

    def step():
        model(torch.ones(4, 8)).mean().backward()
        kept[:] = [copy.deepcopy(model.state_dict())]

    return step


def a_copy_of_a_view_and_tied_weights():
    model, archive, count = nn.Linear(1024, 512), torch.randn(600, 1024), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 1024)).mean().backward()
        if count[0] == 4:
            halves = {"upper": model.weight[:256], "lower": model.weight[256:]}
            torch.save({"start": archive[-2:].clone(), **halves}, io.BytesIO())

    return step
