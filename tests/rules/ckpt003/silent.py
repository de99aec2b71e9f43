import json
import struct
import tempfile
from pathlib import Path

import torch
from torch import nn


def views_of_one_storage():
    whole = torch.arange(60.0).reshape(6, 10)
    views = {"row": whole[2], "column": whole[:, 3], "corner": whole[4:, 7:], "none": whole[:0], "wide": whole[0, :1].expand(50, 50)}
    return lambda: torch.save(views, "last.pt")


def written_without_checksums():
    def step():
        before = torch.serialization.get_crc32_options()
        torch.serialization.set_crc32_options(False)
        try:
            torch.save(nn.Linear(4, 1).state_dict(), "last.pt")
        finally:
            torch.serialization.set_crc32_options(before)

    return step


def old_format_with_shared_storages():
    model = nn.Linear(4, 4)
    saved = {"a": model.weight.data, "b": model.weight.data[1:], "half": torch.ones(3).half(), "long": torch.ones(3).long()}
    return lambda: torch.save(saved, "last.pt", _use_new_zipfile_serialization=False)


def empty_tensors_and_dtypes_without_numpy():
    saved = {"none": torch.empty(0), "bf16": torch.ones(3).bfloat16(), "fp8": torch.ones(3).to(torch.float8_e4m3fn), "bool": torch.ones(2) > 0}
    return lambda: torch.save(saved, "last.pt")


def shards_all_there():
    def step():
        torch.save({"a.weight": torch.ones(2, 2)}, "part-1.bin")
        header = json.dumps({"__metadata__": {"format": "pt"}, "b.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
        Path("part-2.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        listed = {"a.weight": "part-1.bin", "b.weight": "part-2.safetensors"}
        Path("model.bin.index.json").write_text(json.dumps({"weight_map": listed}))

    return step


def renamed_when_it_is_whole():
    model, path = nn.Linear(8, 8), Path(tempfile.mkdtemp()) / "last.pt"

    def step():
        torch.save(model.state_dict(), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    return step


def one_file_for_each_step():
    model, folder, count = nn.Linear(8, 8), Path(tempfile.mkdtemp()), [0]

    def step():
        count[0] += 1
        torch.save(model.state_dict(), folder / f"{count[0]}.pt")

    return step


def the_one_before_moved_away_first():
    model, path = nn.Linear(8, 8), Path(tempfile.mkdtemp()) / "last.pt"

    def step():
        if path.exists():
            path.replace(path.with_suffix(".before"))
        torch.save(model.state_dict(), path)

    return step
