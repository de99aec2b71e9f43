"""Damaged and hostile checkpoints: one sentence each, no crash, no code run, no memory to speak
of.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import resource
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.extensions.checkpoints.contents import NotACheckpoint
from auditor.extensions.checkpoints.scan import scan


def saved(**more):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, file, **more
    )
    return file.getvalue()


def safetensors(header, data=bytes(64)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(**more):
    return {"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64], **more}}


WHOLE = {
    "zip": saved(),
    "legacy": saved(_use_new_zipfile_serialization=False),
    "safetensors": safetensors(entry()),
}


def said(path):
    """What is said about a file: its damage, or why it is no checkpoint. Every sentence is short
    and on one line.
    """
    try:
        sentences = scan(path).damage
    except NotACheckpoint as problem:
        sentences = (str(problem),)
    assert all(
        0 < len(each) < 400 and "\n" not in each and "Traceback" not in each for each in sentences
    )
    return sentences


@pytest.fixture
def file(tmp_path):
    def write(content):
        (tmp_path / "x.pt").write_bytes(content)
        return tmp_path / "x.pt"

    return write


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_files_are_silent(file, kind):
    assert said(file(WHOLE[kind])) == ()


@pytest.mark.parametrize("kind", WHOLE)
def test_every_truncation_is_noticed(file, kind):
    whole = WHOLE[kind]
    for length in sorted({*range(0, len(whole), max(1, len(whole) // 60)), len(whole) - 1}):
        assert said(file(whole[:length])), (
            f"nothing was said of the first {length} of {len(whole)} bytes"
        )


@pytest.mark.parametrize("kind", WHOLE)
def test_flipped_bits_never_crash(file, kind):
    generator = random.Random(0)
    for _ in range(150):
        raw = bytearray(WHOLE[kind])
        for _ in range(generator.choice((1, 1, 3, 20))):
            raw[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
        said(file(raw))


def test_every_flipped_bit_of_the_weights_is_noticed(file):
    raw = WHOLE["zip"]
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        records = [
            info
            for info in archive.infolist()
            if "/data/" in info.filename and info.file_size > 100
        ]
    for info in records:
        at = (
            raw.index(archive_data := zipfile.ZipFile(io.BytesIO(raw)).read(info))
            + len(archive_data) // 2
        )
        damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        assert any("checksum" in each for each in said(file(damaged)))


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_random_opcodes_in_the_place_of_the_pickle(file, kind):
    generator = random.Random(1)
    for _ in range(120):
        pickled = (
            b"\x80\x02"
            + bytes(generator.randrange(256) for _ in range(generator.randrange(60)))
            + b"."
        )
        said(file(archive(pickled) if kind == "zip" else legacy(pickled)))


def archive(pickled, **records):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("a/data.pkl", pickled)
        file.writestr("a/version", b"3\n")
        for name, content in records.items():
            file.writestr(f"a/data/{name[1:]}", content)
    return made.getvalue()


def legacy(pickled):
    head = [
        pickle.dumps(0x1950A86A20F9469CFC6C, 2),
        pickle.dumps(1001, 2),
        pickle.dumps({"little_endian": True}, 2),
    ]
    return b"".join(head) + pickled + pickle.dumps([], 2)


class Runs:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("make", [archive, legacy])
@pytest.mark.parametrize(
    "call",
    [
        (os.system, "touch {}"),
        (eval, "open('{}', 'w')"),
        (exec, "open('{}', 'w')"),
        (subprocess.check_call, ["touch", "{}"]),
        (os.open, "{}", os.O_CREAT),
        (torch.load, "{}"),
    ],
    ids=["system", "eval", "exec", "check_call", "open", "load"],
)
def test_hostile_pickles_run_nothing(tmp_path, make, call):
    trace = tmp_path / "it-ran"
    filled = [
        [each.format(trace) for each in word] if isinstance(word, list) else word for word in call
    ]
    filled = [word.format(trace) if isinstance(word, str) else word for word in filled]
    (tmp_path / "x.pt").write_bytes(make(pickle.dumps({"a": Runs(*filled)}, 2)))
    found = scan(tmp_path / "x.pt")
    assert not trace.exists()
    assert len(found.foreign) == 1


def test_a_command_in_a_checkpoint_is_an_error_of_the_command_line(tmp_path):
    (tmp_path / "x.pt").write_bytes(archive(pickle.dumps({"a": Runs(os.system, "true")}, 2)))
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 1
    assert (
        "error" in result.output and "CKPT001" in result.output and "posix.system" in result.output
    )


HOGS = {
    "memo of two billion": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "string of two billion": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "frame of an exabyte": b"\x80\x04\x95" + b"\xff" * 7 + b"\x0fN.",
    "number of a gigabyte": b"\x80\x02\x8b\xff\xff\xff\x3f1.",
    "bytearray of a terabyte": b"\x80\x02cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "lists in lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "a tuple of itself, squared sixty times": b"\x80\x02)"
    + b"\x86".join(b"q%c" % n + b"h%c" % n for n in range(60))
    + b"\x86.",
}


@pytest.mark.parametrize("name", HOGS)
def test_pickles_that_ask_for_memory_or_time(file, name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said(file(archive(HOGS[name])))
    said(file(legacy(HOGS[name])))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # KB


def tensor(storage, *numbers):
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return (
        b"\x80\x02"
        + rebuild
        + b"("
        + storage
        + b"Q"
        + b"".join(numbers)
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


def integer(n):
    return pickle.dumps(n, 2)[2:-1]


def numbers(*each):
    return b"(" + b"".join(map(integer, each)) + b"t"


def storage(kind="Float", key="0", n=16):
    return (
        b"(X\x07\x00\x00\x00storagectorch\n"
        + kind.encode()
        + b"Storage\nX\x01\x00\x00\x00"
        + key.encode()
        + b"X\x03\x00\x00\x00cpu"
        + integer(n)
        + b"t"
    )


WRONG = {
    "reaches beyond its storage": (storage(), integer(0), numbers(40), numbers(1)),
    "begins beyond its storage": (storage(), integer(2**70), numbers(4), numbers(1)),
    "astronomic shape": (storage(), integer(0), numbers(2**62, 2**62), numbers(2**62, 1)),
    "negative stride": (storage(), integer(8), numbers(4), numbers(-1)),
    "shape and stride differ": (storage(), integer(0), numbers(4, 4), numbers(1)),
    "more elements than its record": (storage(n=2**40), integer(0), numbers(4), numbers(1)),
    "storage of another dtype": (storage("Double"), integer(0), numbers(4), numbers(1)),
    "record that is missing": (storage(key="7"), integer(0), numbers(4), numbers(1)),
    "negative number of elements": (storage(n=-1), integer(0), numbers(4), numbers(1)),
}


@pytest.mark.parametrize("name", WRONG)
def test_tensors_that_contradict_their_data(file, name):
    assert len(said(file(archive(tensor(*WRONG[name]), _0=bytes(64))))) == 1


def test_a_value_repeated_over_an_astronomic_shape_costs_nothing(file):
    found = scan(
        file(
            archive(
                tensor(storage(), integer(0), numbers(2**30, 2**30), numbers(0, 0)), _0=bytes(64)
            )
        )
    )
    assert not found.damage and found.tensors[0].tally.count == 1


def test_a_zip_bomb_is_not_unpacked(file):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("a/data.pkl", bytes(50_000_000))
    assert said(file(made.getvalue())) == (
        "it has compressed records, which torch.save never writes",
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (b"abc", "3 bytes stand behind its directory"),
        (b"", "good"),
        (None, "a comment of 5 bytes"),
    ],
)
def test_what_stands_behind_an_archive_is_said(file, more, words):
    raw = WHOLE["zip"]
    path = file(raw[:-2] + b"\x05\0hello" if more is None else raw + more)
    assert words in (said(path) or ("good",))[0]


def test_a_program_is_none_even_if_it_is_compressed(tmp_path):
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "x.pt")
    with pytest.raises(NotACheckpoint, match="TorchScript"):
        scan(tmp_path / "x.pt")


def test_records_that_overlap_are_refused(file):
    raw = bytearray(archive(pickle.dumps({}), _0=bytes(4000)))
    at = raw.index(b"PK\x01\x02")
    raw[at + 20 : at + 28] = struct.pack("<II", 4200, 4200)
    assert len(said(file(raw))) == 1


@pytest.mark.parametrize(
    "header",
    [
        entry(dtype="F64"),
        entry(shape=[17]),
        entry(shape=[-16]),
        entry(shape="16"),
        entry(shape=[2**63, 2**63]),
        entry(data_offsets=[0, 128]),
        entry(data_offsets=[64, 0]),
        entry(data_offsets=[0]),
        {**entry(), "v": {"dtype": "F32", "shape": [8], "data_offsets": [32, 64]}},
        {"w": 7},
        [1],
        b'{"w": ' + b"[" * 100_000,
        b"{\xff\xfe}",
    ],
)
def test_wrong_headers_of_safetensors(file, header):
    assert len(said(file(safetensors(header)))) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        bytes(100),
        b"<html>" * 10,
        b"\x7fELF" + bytes(100),
        b"version https://git-lfs\n",
    ],
)
def test_what_is_no_checkpoint_ends_in_one_sentence(tmp_path, content):
    (tmp_path / "x.pt").write_bytes(content)
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path / "x.pt")])
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_missing_file_and_a_folder_without_checkpoints(tmp_path):
    for path in (tmp_path / "nowhere.pt", tmp_path):
        result = CliRunner().invoke(main, ["checkpoint", str(path)])
        assert result.exit_code == 2 and result.output.startswith("audit: ")


def test_the_scan_takes_little_memory(tmp_path):
    """300 MB of float32 in 40 MB beyond the interpreter and numpy."""
    torch.save({f"layer{n}.weight": torch.ones(25_000_000) for n in range(3)}, tmp_path / "big.pt")
    code = (
        "import resource, sys, numpy; from pathlib import Path; from auditor.extensions.checkpoints.scan "
        "import scan\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); found = scan(Path(sys.argv[1])); assert len(found.tensors) == 3 and not "
        "found.damage\n"
        "assert 'torch' not in sys.modules; print(peak() - before)"
    )
    root = Path(__file__).resolve().parent.parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "big.pt"],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    assert int(done.stdout) < 40_000, done.stdout


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.pt")
    assert said(tmp_path / "x.pt") == ("it is no file",)


def test_a_name_that_says_another_format(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(WHOLE["zip"])
    assert said(tmp_path / "x.safetensors") == (
        "its name says safetensors, and its content does not",
    )


def test_words_of_a_file_are_printable(file):
    header = json.dumps(
        {"w\x1b[2J\u202e": {"dtype": "F32", "shape": [17], "data_offsets": [0, 64]}}
    ).encode()
    sentences = said(file(safetensors(header)))
    assert sentences and all(each.isprintable() for each in sentences)
    found = scan(
        file(archive(b"\x80\x02}" + b"X\x03\x00\x00\x00\xed\xb0\x80K\x01s."))
    )  # half a character as a key
    assert not found.damage
    (tmp := scan(file(archive(b"\x80\x02cos\x1b[2J\nx\n.")))).foreign[0].encode("ascii")
    assert tmp.codes
