"""Checkpoints that no one should load: none of them may be called good. Nothing here is ever loaded
without weights_only.
"""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0x1950A86A20F9469CFC6C

CALLABLES = """
os.system posix.system subprocess.Popen builtins.eval builtins.exec builtins.open builtins.getattr
builtins.type pickle.loads marshal.loads joblib.load numpy.load pandas.read_pickle torch.load
torch.hub.load torch.jit.load torch.classes.load_library torch.distributed.rpc.rpc_sync
importlib.import_module runpy.run_path ctypes.CDLL socket.socket shutil.rmtree io.FileIO
functools.partial operator.attrgetter types.FunctionType logging.config.fileConfig pip.main
copyreg._reconstructor yaml.unsafe_load transformers.AutoModel.from_pretrained mymodels.net.Net
torch.nn.modules.linear.Linear collections.namedtuple
""".split()
"""Dangerous callables that scanners and their bypasses are known by, and a few that nobody can
judge.
"""

DISGUISED = (
    ("torch._utils", "_rebuild_tensor_v2.__globals__"),
    ("torch._utils", "_rebuild_evil"),
    ("torch._utils", "_rebuild_tensor_v2.__globals__.__getitem__"),
    ("torch", "storage.os.system"),
    ("torch.storage", "io.FileIO.Storage"),
    ("torch.cuda", "EvilStorage"),
    ("torch", "float32.__reduce__"),
    ("torch", "uint8x"),
    ("torch", "quantize_per_tensor"),
    ("collections", "OrderedDict.__init__.__globals__"),
    ("builtins", "set.__class__"),
    ("__builtin__", "eval"),
    ("numpy", "dtype.__class__"),
)
"""Names that begin or end like good ones."""


def word(text: str) -> bytes:
    """A text as an opcode."""
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def call(name: str) -> bytes:
    """A pickle that calls a name, beside a number."""
    module, _, attribute = name.rpartition(".")
    called = f"c{module}\n{attribute}\n".encode() + word("true") + b"\x85R"
    return b"\x80\x02}" + word("step") + b"K\x05s" + word("hook") + called + b"s."


def archive(
    pickled: bytes,
    *,
    root: str = "archive",
    compress: int = zipfile.ZIP_STORED,
    version: bytes = b"3\n",
    **more: bytes,
) -> bytes:
    """A zip archive as torch.save writes it, by zipfile. Names in ``more`` have ``__`` for a
    slash.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compress) as file:
        file.writestr(f"{root}/data.pkl", pickled)
        file.writestr(f"{root}/version", version)
        for name, content in more.items():
            file.writestr(f"{root}/{name.replace('__', '/')}", content)
    return made.getvalue()


def legacy(content: bytes, place: int = 3, trailing: bytes = b"") -> bytes:
    """The old format, with ``content`` in the place of one of its five pickles."""
    five = [
        pickle.dumps(each, 2) for each in (MAGIC, 1001, {"little_endian": True}, {"step": 1}, [])
    ]
    five[place] = content
    return b"".join(five) + trailing


GOOD = pickle.dumps({"step": 5}, 2)
EVIL = call("os.system")


def _opcodes() -> Iterator[tuple[str, bytes]]:
    """All ways in which a pickle names and calls something."""
    ways = {
        "reduce": b"cos\nsystem\n" + word("true") + b"\x85R",
        "reduce-protocol-0": b"cos\nsystem\n(S'true'\ntR",
        "stack-global": word("os") + word("system") + b"\x93" + word("true") + b"\x85R",
        "stack-global-of-memo": word("os")
        + b"q\x000"
        + word("system")
        + b"q\x010h\x00h\x01\x93"
        + word("true")
        + b"\x85R",
        "inst": b"(S'true'\nios\nsystem\n",
        "obj": b"(cos\nsystem\n" + word("true") + b"o",
        "newobj": b"csubprocess\nPopen\n" + word("true") + b"\x85\x81",
        "newobj-ex": b"csubprocess\nPopen\n" + word("true") + b"\x85}\x92",
        "build": b"cmymodels\nNet\n)\x81}" + word("x") + b"K\x01sb",
        "build-on-a-class": b"ccollections\nCounter\nN}"
        + word("update")
        + b"ccollections\nOrderedDict\ns\x86b",
        "named-only": b"cos\nsystem\n",
        "default-factory": b"ccollections\ndefaultdict\ncos\nsystem\n\x85R",
        "as-a-key": b"}cos\nsystem\nK\x01s",
        "from-type": b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nctorch\nTensor\n"
        + word("true")
        + b"\x85NtR",
        "parameter": b"ctorch._utils\n_rebuild_parameter\ncos\nsystem\n\x85R",
        "hook": b"ccollections\nOrderedDict\n)RK\x01cos\nsystem\ns",
        "popped": b"cos\nsystem\n" + word("true") + b"\x85R0N",
        "extension": b"\x82\x01",
        "extension-4": b"\x84\x01\x00\x00\x00",
        "persistent-text": b"Pos\n",
        "persistent-module": b"("
        + word("module")
        + b"cos\nsystem\n"
        + word("a.py")
        + word("print()")
        + b"tQ",
        "persistent-other": b"(" + word("file") + word("/etc/passwd") + b"tQ",
        "value-called": b"ctorch\nfloat32\n)R",
        "text-called": word("os.system") + b")R",
        "huge-bytearray": b"cbuiltins\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R",
        "huge-tensor": b"ctorch\nFloatTensor\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R",
        "list-as-a-key": b"}]K\x01s",
        "deep-key": b"})" + b"\x85" * 200_000 + b"K\x01s",
        "deep-in-a-set": b"\x8f()" + b"\x85" * 200_000 + b"\x90",
        "deep-in-a-frozenset": b"()" + b"\x85" * 200_000 + b"\x91",
        "deep-in-set-of-list": b"cbuiltins\nset\n])" + b"\x85" * 200_000 + b"a\x85R",
        "squared-key": b"})"
        + b"\x86".join(b"q%c" % n + b"h%c" % n for n in range(60))
        + b"\x86K\x01s",
        "memo-of-nothing": b"h\x05",
        "empty-stack": b"0",
        "wrong-text": b"X\x02\x00\x00\x00\xff\xfe",
    }
    for name, body in ways.items():
        yield name, b"\x80\x02" + body + b"."
    yield "no-protocol", b"cos\nsystem\n(S'true'\ntR."


def _archives() -> Iterator[tuple[str, bytes]]:
    """Archives in which readers see different things."""
    for first, second in ((EVIL, GOOD), (GOOD, EVIL)):
        which = "first" if first is EVIL else "last"
        twice = archive(first, xata__pkl=b"").replace(b"archive/xata/pkl", b"archive/data.pkl")
        yield f"empty-second-{which}", twice
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as file:
            file.writestr("archive/data.pkl", first)
            file.writestr("archive/xxxx.pkl", second)
            file.writestr("archive/version", b"3\n")
        yield f"two-pickles-evil-{which}", made.getvalue().replace(b"xxxx.pkl", b"data.pkl")
        yield (
            f"two-pickles-of-two-cases-evil-{which}",
            made.getvalue().replace(b"xxxx.pkl", b"DATA.PKL"),
        )
        yield (
            f"two-folders-evil-{which}",
            made.getvalue().replace(b"archive/xxxx.pkl", b"brchive/data.pkl"),
        )
        yield f"names-in-header-and-directory-differ-{which}", _renamed(made.getvalue())
        yield f"archive-behind-archive-evil-{which}", archive(first) + archive(second)
        yield f"archive-in-a-comment-evil-{which}", _commented(archive(first), archive(second))
    yield "pickle-in-front", EVIL + archive(GOOD)
    yield "legacy-in-front", legacy(EVIL) + archive(GOOD)
    yield "bytes-in-front", b"PK\x03\x04" + bytes(60) + archive(GOOD)
    yield "bytes-behind", archive(GOOD) + b"more"
    yield "another-pickle", archive(GOOD, other__pkl=EVIL)
    yield "another-pickle-by-name", archive(GOOD).replace(b"version", b"evl.pkl")
    yield "pickle-in-a-storage", archive(GOOD, data__0=EVIL)
    yield "program", archive(GOOD, code____torch__=b"def forward(self): pass\n")
    yield "constants", archive(GOOD).replace(b"archive/version", b"archive/constan")
    yield "compressed", archive(EVIL, compress=zipfile.ZIP_DEFLATED)
    yield "bomb", archive(bytes(20_000_000), compress=zipfile.ZIP_DEFLATED)
    yield "encrypted", _flagged(archive(GOOD), 1)
    yield "masked", _flagged(archive(GOOD), 0x2000)
    yield "wrong-checksum", archive(GOOD).replace(GOOD, GOOD[:-2] + b"K" + GOOD[-1:])
    yield "no-version", archive(GOOD).replace(b"version", b"versiom")
    yield "version-of-words", archive(GOOD, version=b"three")
    yield "byte-order", archive(GOOD, byteorder=b"middle")
    yield "no-folder", archive(GOOD).replace(b"archive/", b"archive_")
    yield "empty-archive", b"PK\x05\x06" + bytes(18)
    for cut in (40, 90, 200):
        yield f"cut-{cut}", archive(GOOD)[:-cut]
    int_tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + word("storage")
        + b"ctorch\nLongStorage\n"
        + word("0")
        + word("cpu")
    )
    int_tensor = (
        b"\x80\x02"
        + int_tensor
        + b"K\x04tQK\x00K\x04\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
    )
    yield "integers-without-data", archive(int_tensor)
    yield "integers-with-less-data", archive(int_tensor, data__0=bytes(8))
    yield (
        "typed-storage",
        archive(
            int_tensor.replace(b"ctorch\nLongStorage", b"ctorch.storage\nTypedStorage"),
            data__0=bytes(32),
        ),
    )


def _renamed(raw: bytes) -> bytes:
    """The second record is data.pkl in the directory, and something else in its own header; the
    first the other way round.
    """
    head, directory = raw[: raw.index(b"PK\x01\x02")], raw[raw.index(b"PK\x01\x02") :]
    swapped = (
        directory.replace(b"data.pkl", b"swap.pkl")
        .replace(b"xxxx.pkl", b"data.pkl")
        .replace(b"swap.pkl", b"xxxx.pkl")
    )
    return head + swapped


def _commented(outer: bytes, comment: bytes) -> bytes:
    return outer[:-2] + struct.pack("<H", len(comment)) + comment


def _flagged(raw: bytes, flag: int) -> bytes:
    changed = bytearray(raw)
    for magic, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = raw.find(magic)
        while at >= 0:
            changed[at + place] |= flag & 255
            changed[at + place + 1] |= flag >> 8
            at = raw.find(magic, at + 4)
    return bytes(changed)


def _tar(first: str = "storages") -> bytes:
    """The oldest format; ``first`` may begin as a pickle does."""
    made = io.BytesIO()
    with tarfile.open(
        fileobj=made, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1"
    ) as file:
        for name, content in (
            (first, b""),
            ("storages", EVIL),
            ("tensors", pickle.dumps(0, 2)),
            ("pickle", EVIL),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def _others() -> Iterator[tuple[str, bytes]]:
    for place in range(5):
        for name in ("os.system", "torch.hub.load", "collections.namedtuple"):
            yield f"legacy-{place}-{name}", legacy(call(name), place)
    yield "legacy-two-in-one-place", legacy(EVIL + GOOD)
    yield "legacy-behind", legacy(GOOD, trailing=EVIL)
    yield (
        "legacy-keys-of-nothing",
        legacy(pickle.dumps(["0"], 2), 4, struct.pack("<q", 1) + bytes(4)),
    )
    yield "legacy-version", legacy(pickle.dumps(1002, 2), 1)
    yield "plain-pickle", EVIL
    yield "plain-good-pickle", GOOD
    yield "plain-pickle-of-text", b"cos\nsystem\n(S'true'\ntR."
    yield "tar", _tar()
    yield "tar-that-begins-as-a-pickle", _tar("\x80\x02}q\x00.")
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[%d,%d]}}'
    for name, (first, end) in {
        "reversed": (8, 0),
        "out-of-bounds": (0, 80),
        "of-another-size": (0, 12),
    }.items():
        yield (
            f"offsets-{name}.safetensors",
            struct.pack("<Q", len(header % (first, end))) + header % (first, end) + bytes(8),
        )
    two = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
    yield "overlapping.safetensors", struct.pack("<Q", len(two)) + two + bytes(12)
    twice = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    yield "name-twice.safetensors", struct.pack("<Q", len(twice)) + twice + bytes(8)
    hole = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}'
    yield "hole.safetensors", struct.pack("<Q", len(hole)) + hole + bytes(12)
    # a header of 0x..58 bytes: "X" of pickle, which skips into the header's first name
    names = b'{"cos\nsystem\n(S\'true\'\ntR.":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    names += b" " * (0x158 - len(names))
    yield "polyglot-pickle.safetensors", struct.pack("<Q", len(names)) + names + bytes(8)


def files() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file."""
    for name in CALLABLES:
        yield f"calls-{name}.pt", archive(call(name))
    for number, (module, attribute) in enumerate(DISGUISED):
        named = f"c{module}\n{attribute}\n)R.".encode()
        yield f"disguised-{number}.pt", archive(b"\x80\x02" + named)
    for name, pickled in _opcodes():
        yield f"{name}.pt", archive(pickled)
    for name, content in (*_archives(), *_others()):
        yield name if "." in name and name.endswith("safetensors") else f"{name}.pt", content


def write(folder: Path) -> list[Path]:
    """All of them as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files():
        (folder / name.replace("/", "_")).write_bytes(content)
    return sorted(folder.iterdir())
