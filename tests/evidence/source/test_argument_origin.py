"""Where a value that reached a DataLoader is written: one certain place, or none."""

import ast

import pytest

from auditor.evidence.source.call_arguments import (
    Home,
    allocator_home,
    given,
    last_key,
    reads_of,
)
from auditor.evidence.source.config_values import Configs, Setting
from auditor.evidence.source.files import Source
from auditor.model import Site
from auditor.syntax.config_files import read_document, suffix_of, values_in

LOADER = "loader = DataLoader(data, num_workers={})\n"
OPTION = "parser.add_argument('-w', '--num-workers', type=int, default=0)\n"
YAML = {"c.yaml": "data:\n  num_workers: 0\n"}


def home(texts: dict[str, str], documents: dict[str, str], ran: object = 0) -> Home | None:
    settings = [
        Setting(Site(file, 2), where, value)
        for file, text in documents.items()
        for where, value in values_in(read_document(text, suffix_of(file)))
    ]
    line = (
        texts["t.py"]
        .split("\n")
        .index(next(row for row in texts["t.py"].split("\n") if "DataLoader(" in row))
        + 1
    )
    return given(
        Source(texts),
        Configs(tuple(settings)),
        Site("t.py", line),
        "DataLoader",
        "num_workers",
        ran=ran,
    ).home


# fmt: on


@pytest.mark.parametrize(
    ("written", "other", "documents", "ran"),
    [
        ("cfg.num_workers", "", YAML, 2),  # another value ran
        ("cfg.num_workers", "", YAML, False),
        ("cfg.workers", "", YAML, 0),
        ("num_workers()", "", YAML, 0),
        ("cfg.num_workers + 1", "", YAML, 0),
        ("cfg.num_workers", "", {**YAML, "d.json": '{"num_workers": 3}'}, 0),  # two files name it
        ("args.num_workers", OPTION, YAML, 0),  # an option and a file
        ("args.num_workers", OPTION + OPTION, {}, 0),
        ("args.num_workers", OPTION.replace("default=0", "default=N"), {}, 0),
        ("args.num_workers", OPTION.replace("--num", "--no"), {}, 0),
        ("num_workers", "num_workers = 0\nnum_workers = 0\n", {}, 0),
        ("num_workers", "num_workers = 0\ndef f(num_workers): ...\n", {}, 0),
        ("cfg.num_workers", "class C:\n    num_workers: int = 0\nC(num_workers=0)\n", {}, 0),
        ("cfg.num_workers", "class C:\n    num_workers: int = 0\nc.num_workers += 0\n", {}, 0),
        ("num_workers", "num_workers = count()\n", {}, 0),
        ("num_workers", "for num_workers in x: ...\n", {}, 0),
    ],
)
def test_no_certain_place(written, other, documents, ran):
    assert home({"t.py": LOADER.format(written), "o.py": other}, documents, ran) is None


def test_one_line_that_sets_the_allocator():
    lines = tuple(Setting(Site("run.sh", n), ("PYTORCH_ALLOC_CONF",), "") for n in (1, 2))
    assert allocator_home(Configs()) is None
    assert allocator_home(Configs(allocator=lines)) is None
    assert allocator_home(Configs(allocator=lines[:1])) == Home(
        Site("run.sh", 1), "set_value", keyword="PYTORCH_ALLOC_CONF"
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("f(x, pin=fast)\n", []),
        ("f(x, other=fast)\n", [1]),
        ("fast = 1\nif fast:\n    f(a.fast)\n", [2, 3]),
        ("f(x, pin=not fast)\n", [1]),
        ("del fast\n", []),
        ("faster\n", []),
    ],
)
def test_what_else_reads_a_name(text, lines):
    found = reads_of(Source({"t.py": text}), "fast", apart_from="pin")
    assert sorted(node.lineno for node in found) == lines


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("cfg.data.num_workers", "num_workers"),
        ("cfg['num_workers']", "num_workers"),
        ("cfg.get('num_workers', 'zero')", "num_workers"),
        ("int(cfg.get('num_workers', 0))", "num_workers"),
        ("bool(pin)", "pin"),
        ("int(a, b)", ""),
        ("max(a)", ""),
        ("cfg.get()", ""),
        ("cfg[0]", ""),
        ("a + b", ""),
    ],
)
def test_by_what_name_an_expression_asks_for_its_value(text, key):
    assert last_key(ast.parse(text, mode="eval").body) == key
