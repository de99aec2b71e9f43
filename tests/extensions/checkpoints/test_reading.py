"""What a file is called: good, damaged, refused or not looked at, and no code of it is run."""

import io
import json
import os
import random
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.extensions.checkpoints import files
from auditor.extensions.checkpoints.reading import NotACheckpoint
from fuzz import real_checkpoints
from fuzz.hostile_checkpoints import archive, call, legacy

ONES = torch.ones(2)


def saved(**more):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    return real_checkpoints.saved(parts, **more)


WHOLE = {
    "x.pt": saved(),
    "old.pt": saved(_use_new_zipfile_serialization=False),
    "x.safetensors": real_checkpoints.safetensors(w=torch.ones(16), b=torch.ones(4)),
}


def told(judged, *given, **named):
    """The verdict and all sentences: each short, and on one line."""
    found = judged(*given, **named)
    sentences = (*found.scan.damage, found.scan.refused, *found.scan.limits)
    assert all(len(each) < 400 and each.isprintable() for each in sentences)
    return found.verdict, " ".join(sentences)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_are_good(judged, name):
    found = judged(WHOLE[name], name)
    assert found.verdict == "good" and not found.scan.limits and not found.scan.foreign
    assert len(found.scan.tensors) == (2 if name.endswith("tensors") else 16)


# -- damaged ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_was_cut_off_is_damaged(judged, name):
    whole = WHOLE[name]
    for length in (*range(60, len(whole), len(whole) // 6), len(whole) - 1):
        verdict, _ = told(judged, whole[:length], name)
        assert verdict in ("damaged", "refused"), length


@pytest.mark.parametrize("name", WHOLE)
def test_flipped_bits_never_stop_the_reading(judged, name):
    generator = random.Random(0)
    for _ in range(12):
        raw = bytearray(WHOLE[name])
        for _ in range(generator.choice((1, 3, 20))):
            raw[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
        try:
            told(judged, bytes(raw), name)
        except NotACheckpoint:
            pass


def test_a_flipped_bit_of_the_weights_is_damage(judged):
    raw = bytearray(WHOLE["x.pt"])
    with zipfile.ZipFile(io.BytesIO(raw)) as file:
        record = max(file.infolist(), key=lambda each: "/data/" in each.filename and each.file_size)
        at = raw.index(file.read(record)) + record.file_size // 2
    raw[at] ^= 1
    verdict, said = told(judged, bytes(raw))
    assert verdict == "damaged" and f"the checksum or header of {record.filename} is wrong" in said


def test_an_archive_without_checksums_is_read_all_the_same(judged):
    torch.serialization.set_crc32_options(False)
    try:
        raw = saved()
    finally:
        torch.serialization.set_crc32_options(True)
    assert told(judged, raw) == ("good", "")


GOOD = b"\x80\x02}."


def zipped(*records, **more):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", more.get("compress", zipfile.ZIP_STORED)) as file:
        for name, content in (("a/version", b"3\n"), ("a/byteorder", b"little"), *records):
            file.writestr(name, content)
    return made.getvalue()


def link():
    entry = zipfile.ZipInfo("a/data/0")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return zipped(("a/data.pkl", GOOD), (entry, b"/etc/passwd"))


PKL = ("a/data.pkl", GOOD)
ARCHIVES = {
    "a name twice": zipped(PKL, ("a/xata.pkl", GOOD)).replace(b"xata", b"data"),
    "a name twice, and": zipped(PKL, ("a/DATA.PKL", GOOD)),
    "more than one folder": zipped(PKL, ("b/more", b"")),
    "no data.pkl, or more than one": zipped(PKL, ("a/b/data.pkl", GOOD)),
    "no data.pkl": zipped(("a/other.pkl", GOOD)),
    "a link": link(),
    "compressed or encrypted": zipped(("a/data.pkl", bytes(9_000_000)), compress=8),
    "encrypted": zipped(PKL).replace(b"PK\x01\x02\x14\x03\x14\0\0", b"PK\x01\x02\x14\x03\x14\0\1"),
    "longer than the file": zipped(PKL, ("a/data/0", bytes(64))).replace(
        struct.pack("<II", 64, 64), struct.pack("<II", 2**30, 2**30)
    ),
    "the checksum or header of a/data.pkl": zipped(PKL).replace(b"a/data.pkl", b"a/name.pkl", 1),
}


@pytest.mark.parametrize("words", ARCHIVES)
def test_archives_that_torch_would_read_in_part(judged, words):
    verdict, said = told(judged, ARCHIVES[words])
    assert verdict == "damaged" and words in said


def test_a_storage_that_is_longer_than_its_record(judged):
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nLongStorage\n"
    rebuild += (
        b"X\1\0\0\0" + b"0X\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR."
    )
    assert judged(archive(b"\x80\x02" + rebuild, data__0=bytes(32))).good
    verdict, said = told(judged, archive(b"\x80\x02" + rebuild, data__0=bytes(8)))
    assert verdict == "damaged" and "not as long as its record" in said


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "size"),
    [
        ('{"w": TWICE, "w": TWICE}'.replace("TWICE", json.dumps(ENTRY)), 8),
        (json.dumps({"w": {**ENTRY, "data_offsets": [4, 12]}}), 12),
        (json.dumps({"w": ENTRY}), 12),
        (json.dumps({"w": ENTRY}), 4),
        (json.dumps({"w": {**ENTRY, "dtype": "F33"}}), 8),
        (json.dumps({"w": {**ENTRY, "shape": [2**62, 4]}}), 8),
        (json.dumps({"w": 7}), 8),
        ('{"w": ' + "[" * 100_000, 8),
    ],
    ids=["twice", "hole", "rest", "cut", "dtype", "shape", "word", "deep"],
)
def test_wrong_headers_of_safetensors(judged, header, size):
    raw = struct.pack("<Q", len(header)) + header.encode() + bytes(size)
    assert told(judged, raw, "x.safetensors")[0] == "damaged"


BOMBS = {
    "deep key": b"})" + b"\x85" * 200_000 + b"K\x01s",
    "squared key": b"})" + b"\x86".join(b"q%c" % n + b"h%c" % n for n in range(60)) + b"\x86K\x01s",
    "terabyte": b"cbuiltins\nbytearray\n\x8a\x06\0\0\0\0\0\1\x85R",
    "lists in lists": b"]" * 200_000 + b"a" * 199_999,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_kills_its_reader_is_damaged(judged, monkeypatch, name):
    monkeypatch.setattr(files, "CPU_SECONDS", 1.0)
    verdict, said = told(judged, archive(b"\x80\x02" + BOMBS[name] + b"."))
    assert verdict == ("not looked at" if name == "lists in lists" else "damaged")


def test_a_file_that_kills_its_reader_costs_one_line_of_a_folder(tmp_path, monkeypatch):
    for step, name in ((3, "good.pt"), (9, "kills.pt")):
        torch.save({"step": step, "w": ONES}, tmp_path / name)
    whole = files.read
    monkeypatch.setattr(
        files,
        "read",
        lambda path: os.kill(os.getpid(), 11) if path.name == "kills.pt" else whole(path),
    )
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["checkpoint", "."])
    assert result.exit_code == 1
    assert "kills.pt  damaged" in result.output and "SIGSEGV" in result.output
    assert result.output.rstrip().endswith("latest good: good.pt")


# -- refused ---------------------------------------------------------------------------------------


class Runs:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch it-ran",)


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ({"a": Runs()}, {}, "posix"),
        ({"a": Runs()}, {"_use_new_zipfile_serialization": False}, "posix"),
        (torch.nn.Linear(2, 2), {}, "its pickle names torch.nn.modules.linear.Linear"),
        ({"a": ONES}, {"pickle_protocol": 4}, "the opcode FRAME of protocol 4"),
        ({"a": np.array([None, 1], dtype=object)}, {}, "an array of objects"),
    ],
    ids=["command", "old", "module", "protocol", "objects"],
)
def test_torch_refuses_what_may_run_code(judged, tmp_path, monkeypatch, content, more, said):
    monkeypatch.chdir(tmp_path)
    verdict, sentence = told(judged, content, **more)
    assert verdict == "refused" and said in sentence
    result = CliRunner().invoke(main, ["checkpoint", "x.pt"])
    assert result.exit_code == 1 and "x.pt  refused" in result.output
    assert "CKPT001" in result.output and "picklescan or modelaudit" in result.output
    assert not (tmp_path / "it-ran").exists()


def test_a_program_is_refused(judged, tmp_path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "program.pt")
    verdict, said = told(judged, (tmp_path / "program.pt").read_bytes())
    assert verdict == "refused" and "TorchScript" in said


def test_torch_imports_what_a_tensor_of_several_ranks_needs(judged):
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        weight = DTensor.from_local(torch.ones(4, 2), mesh, [Shard(0)])
        verdict, said = told(judged, {"w": weight, "b": ONES})
    finally:
        dist.destroy_process_group()
    assert verdict == "not looked at" and "w is a DTensor" in said


@pytest.mark.parametrize("name", ["torch.hub.load", "collections.namedtuple", "numpy.load"])
@pytest.mark.parametrize("make", [archive, legacy])
def test_the_name_is_said(judged, name, make):
    assert told(judged, make(call(name))) == (
        "refused",
        f" its pickle names {name}, which may run code ".strip(),
    )


# -- let in ----------------------------------------------------------------------------------------


def test_what_trainers_save_beside_their_weights_is_let_in_and_named(judged, tmp_path):
    found = judged({"model": {"w": ONES}, "loss": np.float32(1), "args": Path("a")})
    assert found.good and "numpy.dtype" in found.scan.foreign
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 0 and "torch.serialization.safe_globals" in result.output


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "f2", "c8"])
def test_numbers_of_arrays_are_looked_at(judged, dtype):
    for value in (np.array([1, np.nan], dtype), np.zeros((2, 2), dtype) + np.inf):
        (bad,) = judged({"model": {"w": value}}).poisoned
        assert bad.name == "model.w"
    assert judged({"model": {"w": np.ones((2, 3), dtype)}, "none": np.zeros((0, 2))}).good


def test_a_stand_in_with_odd_arguments_is_damage(judged):
    for body in (
        b"cnumpy.core.multiarray\nscalar\n)R",
        b"cnumpy.core.multiarray\n_reconstruct\n)RNb",
        b"cnumpy.core.multiarray\nscalar\nNN\x86R",
        b"cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0i9\x85RN\x86R",
    ):
        assert told(judged, archive(b"\x80\x02" + body + b"."))[0] == "damaged"


# -- no checkpoint ---------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"hello", bytes(100), b"<html>" * 10])
def test_what_is_no_checkpoint_ends_in_one_sentence(tmp_path, content):
    (tmp_path / "x.pt").write_bytes(content)
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.pt")
    assert str(*files.scans_of([tmp_path / "x.pt"])) == "it is not a file"


def test_torch_is_never_imported_in_the_process_that_judges(tmp_path):
    torch.save({"model": {"w": ONES}}, tmp_path / "a.pt")
    code = (
        "import sys; from auditor.cli.main import main\n"
        "try: main(['checkpoint', sys.argv[1]])\n"
        "except SystemExit as end: print(end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.pt"], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("0 False\n") and done.stderr == ""
