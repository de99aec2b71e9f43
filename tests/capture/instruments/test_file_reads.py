"""Files that are read whole: what counts, and that the functions are put back."""

import json
import pickle

import numpy as np
import pytest
import torch

from auditor.capture.instruments.loader_workers import FileReads
from auditor.capture.instruments.monkeypatch import Patches


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4))
    np.save(tmp_path / "b.npy", np.ones(40))
    np.savez(tmp_path / "c.npz", x=np.ones(4))
    torch.save(torch.ones(4), tmp_path / "d.pt")
    (tmp_path / "e.json").write_text("[1]")
    with open(tmp_path / "f.pkl", "wb") as file:
        pickle.dump(1, file)
        pickle.dump(2, file)
    return tmp_path


def watched(calls, here=lambda: "here"):
    """What was seen of the calls."""
    patches, reads = Patches(), FileReads(here)
    before = np.load, torch.load, json.load, pickle.load
    reads.watch(patches.attribute)
    try:
        calls()
    finally:
        patches.undo()
    assert before == (np.load, torch.load, json.load, pickle.load)
    taken = reads.taken()
    assert reads.taken() == {}
    return taken


def test_what_is_no_whole_file_is_not_counted(folder):
    def calls():
        np.load(folder / "a.npy", mmap_mode="r")
        np.load(folder / "a.npy", "r")
        np.load(folder / "c.npz")
        np.fromfile(folder / "a.npy", count=1)
        with open(folder / "f.pkl", "rb") as file:
            pickle.load(file)
            assert pickle.load(file) == 2  # the second object of the file
        with pytest.raises(FileNotFoundError):
            np.load(folder / "missing.npy")

    assert {each.name: each.n for each in watched(calls)["here"]} == {"pickle.load": 1}


def test_an_open_file_counts_by_its_name(folder):
    def calls():
        for _ in range(2):
            with open(folder / "e.json") as file:
                assert json.load(file) == [1]

    (read,) = watched(calls)["here"]
    assert (read.n, read.again, read.largest) == (2, 1, (3, str(folder / "e.json")))
