import json
import os
import struct
import tempfile
from pathlib import Path

import torch
from torch import nn


def _saved(**more):
    torch.save(nn.Linear(64, 64).state_dict(), "last.pt", **more)
    return Path("last.pt")


def cut_off_in_the_middle():
    return lambda: os.truncate(_saved(), 9000)


def old_format_cut_off():
    return lambda: os.truncate(_saved(_use_new_zipfile_serialization=False), 9000)


def one_bit_of_a_weight_flipped():
    def step():
        path = _saved()
        raw = bytearray(path.read_bytes())
        raw[8000] ^= 4
        path.write_bytes(raw)

    return step


def safetensors_shorter_than_its_header_says():
    def step():
        header = json.dumps({"w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}).encode()
        Path("last.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(20))

    return step


def shard_that_is_missing():
    def step():
        torch.save({"a.weight": torch.ones(2, 2)}, "part-1.bin")
        listed = {"a.weight": "part-1.bin", "b.weight": "part-2.bin"}
        Path("model.bin.index.json").write_text(json.dumps({"weight_map": listed}))

    return step


def only_checkpoint_written_over_in_place_is_a_note():
    model, path = nn.Linear(8, 8), Path(tempfile.mkdtemp()) / "last.pt"
    return lambda: torch.save(model.state_dict(), path)  # CKPT003
