"""Random real files x all patchers: it parses, git takes it, once is enough, undo is exact."""

import ast
import functools
import json
import re
import sysconfig
import warnings
from pathlib import Path
from typing import get_args

import yaml
from hypothesis import assume, event, given
from hypothesis import strategies as st

from auditor.model import Action, Edit, Site
from auditor.patch import Refused, apply_edits, plan
from auditor.syntax.config_files import read_document, suffix_of

MOST_BYTES = 12_000

# What trainers do, put behind a real file, so that each patcher has something to patch in any
# surroundings.
TRAINER = """
import torch
from torch.cuda.amp import autocast


audited_workers = 0


def audited_training(loader, model, optimizer, scaler):
    total = 0.0
    for number, batch in enumerate(loader):
        with autocast(enabled=True):
            loss = model(batch.to("cuda"))
        scaler.scale(loss).backward(retain_graph=True)
        clip_grad_norm_(model.parameters(), 1.0)
        torch.cuda.empty_cache()
        total += loss
        print(f"step {number}: {loss.item():.4f}",
              flush=True)  # every step
        mean = loss.item() / 2; other()
        mask = torch.ones(mean, dtype=bool).to(loss.device)
        scaler.step(optimizer)
        print("scale", scaler.get_scale())
    for batch, other in loader:
        optimizer.step()
        logger.info("loss %s", loss.item())
"""

WISHES = {
    "set_keyword": ("batch.to(", {"call": "to", "keyword": "non_blocking", "value": "True"}),
    "drop_keyword": (".backward(", {"call": "backward", "keyword": "retain_graph"}),
    "drop_statement": ("empty_cache", {"call": "empty_cache"}),
    "detach": ("total += ", {}),
    "rename_call": ("mean = ", {"call": "item", "value": "detach()"}),
    "throttle": ("flush=True", {"value": "50"}),
    "throttle, numbered": ("logger.info(", {"value": "50"}),
    "insert_before": ("clip_grad_norm_(", {"value": "scaler.unscale_(optimizer)"}),
    "insert_after_imports": (
        "clip_grad_norm_(",
        {"value": 'torch.set_float32_matmul_precision("high")'},
    ),
    "make_on_device": ("mask = ", {"call": "to"}),
    "decorate": ("def ", {"value": "torch.no_grad()"}),
    "set_constant": ("audited_workers = ", {"keyword": "audited_workers", "value": "4"}),
    "modernize_amp": ("with autocast(", {"call": "autocast"}),
}

CLOTHES = {
    "as it is": lambda text: text.encode(),
    "windows": lambda text: text.replace("\n", "\r\n").encode(),
    "old mac": lambda text: text.replace("\n", "\r").encode(),
    "mixed ends": lambda text: re.sub(r"\n(?=[^\n]*\n[^\n]*\n)", "\r\n", text).encode(),
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "latin-1": lambda text: ("# -*- coding: latin-1 -*-\n# naïve £\n" + text + "\n# ÿ\n").encode(
        "latin-1"
    ),
    "another alphabet": lambda text: ("# coding: koi8-r\n" + text + "\n# привет\n").encode(
        "koi8-r"
    ),
    "tabs": lambda text: re.sub(
        r"(?m)^( {4})+", lambda match: "\t" * (len(match[0]) // 4), text
    ).encode(),
    "form feeds": lambda text: text.replace("\n\n", "\n\f\n").encode(),
    "a very long line": lambda text: (text + f"\n_LONG = {[*range(20_000)]}  # é\n").encode(),
    "no end": lambda text: text.rstrip("\n").encode(),
}


@functools.cache
def real_files():
    """Small files of the standard library and of torch, in a fixed order."""
    folders = [
        sysconfig.get_path("stdlib"),
        *(f"{sysconfig.get_path('purelib')}/torch/{name}" for name in ("nn", "optim", "utils")),
    ]
    found = [
        path
        for folder in folders
        for path in sorted(Path(folder).rglob("*.py"))
        if path.stat().st_size < MOST_BYTES
    ]
    return found[:: max(1, len(found) // 400)]


def parses(raw):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(raw)
        except (SyntaxError, ValueError):
            return False
    return True


@st.composite
def trainers(draw):
    """A real file, what trainers do behind it, in some encoding and layout."""
    path, clothes = draw(st.sampled_from(real_files())), draw(st.sampled_from(sorted(CLOTHES)))
    try:
        before = re.sub(r"\r\n?", "\n", path.read_bytes().decode())
        assume("coding" not in before[:300] and not before.startswith("\ufeff"))
        raw = CLOTHES[clothes](before.rstrip("\n") + "\n\n" + TRAINER)
    except UnicodeError:
        assume(False)
    assume(parses(raw))
    event(clothes)
    return raw


def test_every_action_has_a_wish():
    assert {action.partition(",")[0] for action in WISHES} | {"set_value"} == set(get_args(Action))


def wish(raw, action):
    """The edit of an action, at the last line that has its mark."""
    lines = re.split(rb"\r\n|\r|\n", raw.removeprefix(b"\xef\xbb\xbf"))
    mark, how = WISHES[action]
    number = max(number for number, line in enumerate(lines, 1) if mark.encode() in line)
    return Edit(
        Site("real.py", number, text=lines[number - 1].decode().strip()),
        action.partition(",")[0],
        **how,
    )


def expect_exact(repository, before, edits, name):
    """Plan the edits, have git make and undo them, and return the result."""
    planned = plan(edits, lambda _: before)
    after = planned.files[0].after
    repository.put(name, before)
    repository.expect_applies(planned.diff, {name: after})
    undone = repository.git("apply", "-R", "-", stdin=planned.diff)
    assert undone.returncode == 0, undone.stderr
    assert (repository.folder / name).read_bytes() == before
    return after


def expect_settled(after, edits):
    """A second time each edit is refused, or makes nothing new."""
    for edit in edits:
        try:
            assert apply_edits(after, [edit]) == after
        except Refused:
            continue


@given(trainers(), st.sets(st.sampled_from(sorted(WISHES)), min_size=1))
def test_patches_of_real_files_are_exact_and_can_be_undone(repository, before, actions):
    edits = [wish(before, action) for action in sorted(actions)]
    planned = plan(edits, lambda _: before)
    late = {"insert_after_imports"}  # a file may have no import before its first definition
    assert {edit.action for edit, _ in planned.refused} <= late, planned.refused
    assume(planned.files)
    made = list(planned.files[0].edits)
    after = expect_exact(repository, before, made, "real.py")
    assert parses(after)
    expect_settled(after, made)


@given(trainers(), st.data())
def test_any_edit_of_any_line_is_made_whole_or_refused(repository, before, data):
    tree = ast.parse(before)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    call = data.draw(st.sampled_from(calls))
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "x")
    action = data.draw(st.sampled_from(sorted(WISHES)))
    how = {**WISHES[action][1], **({"call": name} if "call" in WISHES[action][1] else {})}
    line = call.lineno if "throttle" not in action else data.draw(st.integers(1, call.end_lineno))
    edit = Edit(Site("real.py", line), action.partition(",")[0], **how)
    try:
        after = apply_edits(before, [edit])
    except Refused:
        event(f"refused: {action}")
        return
    event(f"made: {action}")
    assert parses(after)
    assert expect_exact(repository, before, [edit], "real.py") == after


# -- configuration files ---------------------------------------------------------------------------

KEYS = st.sampled_from(
    ["num_workers", "pin_memory", "data", "lr", "model", "name", "train-set", "a.b", "0x", "on"]
)
LEAVES = st.one_of(
    st.integers(-5, 70),
    st.booleans(),
    st.sampled_from(["num_workers: 0", "pin_memory = 1", "x # y", "", "ä", "'\""]),
)
TABLES = st.recursive(
    st.dictionaries(KEYS, LEAVES, min_size=1, max_size=4),
    lambda inner: st.dictionaries(
        KEYS, st.one_of(LEAVES, inner, st.lists(inner, max_size=2)), min_size=1, max_size=4
    ),
    max_leaves=8,
)


def as_toml(data, prefix=()):
    """A document with a table for each mapping; lists of mappings are written inline."""
    rows = [
        f"{json.dumps(key)} = {inline(value)}"
        for key, value in data.items()
        if not isinstance(value, dict)
    ]
    inner = [
        as_toml(value, (*prefix, key)) for key, value in data.items() if isinstance(value, dict)
    ]
    head = [f"[{'.'.join(json.dumps(part) for part in prefix)}]  # table"] if prefix else []
    return "\n".join([*head, *rows, "", *inner])


def inline(value):
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)}={inline(item)}" for key, item in value.items())
            + "}"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    return json.dumps(value, ensure_ascii=False)


def as_ini(data):
    """Each mapping of the top as a section; its own keys in one more; deeper is left out."""
    rows = ["[top]", *(f"{key} = {value}".strip() for key, value in data.items() if is_flat(value))]
    for name, section in data.items():
        if isinstance(section, dict):
            rows += [
                "",
                f"[{name}]",
                *(f"{key}:{value}" for key, value in section.items() if is_flat(value)),
            ]
    return "\n".join(rows) + "\n"


def is_flat(value):
    return isinstance(value, (bool, int))


WRITERS = {
    "c.ini": [as_ini],
    "c.json": [json.dumps, lambda data: json.dumps(data, indent="\t", ensure_ascii=False) + "\n"],
    "c.yaml": [
        lambda data: "# top\n" + yaml.safe_dump(data, allow_unicode=True, sort_keys=False),
        lambda data: yaml.safe_dump(data, default_flow_style=True, width=40),
        lambda data: re.sub(r"(?m)(: -?\d+)$", r"\1   # note", yaml.safe_dump(data, indent=4)),
    ],
    "c.toml": [as_toml],
}


def places(data, path=()):
    """Where numbers and flags stand under a key."""
    if isinstance(data, dict):
        return [place for key, value in data.items() for place in places(value, (*path, key))]
    if isinstance(data, list):
        return [
            place for number, value in enumerate(data) for place in places(value, (*path, number))
        ]
    return [path] if isinstance(data, (bool, int)) else []


def at(data, path):
    return functools.reduce(lambda found, key: found[key], path, data)


@given(TABLES, st.sampled_from(sorted(WRITERS)), st.integers(0, 2), st.booleans(), st.data())
def test_one_value_of_a_document_changes_and_can_be_undone(
    repository, data, file, style, windows, draws
):
    text = WRITERS[file][style % len(WRITERS[file])](data)
    data = read_document(text, suffix_of(file))  # the document is what counts: INI keeps less
    found = places(data)
    assume(found)
    path = draws.draw(st.sampled_from(found))
    value = draws.draw(st.integers(71, 99))
    before = text.replace("\n", "\r\n").encode() if windows else text.encode()
    edit = Edit(Site(file, 1), "set_value", keyword=json.dumps(path), value=str(value))
    after = expect_exact(
        repository, before, [edit], file
    )  # generated documents hold no place that cannot be told
    changed = read_document(after.decode(), suffix_of(file))
    assert at(changed, path) == value
    at(changed, path[:-1])[path[-1]] = at(data, path)
    assert changed == read_document(before.decode(), suffix_of(file))
    expect_settled(after, [edit])
    assert len(before.splitlines()) == len(after.splitlines())


@given(
    st.lists(
        st.sampled_from(["", "#!/bin/sh", "A=b", "export B='c d'", "# PYTORCH", 'cd "$X" && ls']),
        max_size=5,
    ),
    st.sampled_from(["", "export ", "  ", "X=1 "]),
    st.sampled_from(["", '"', "'"]),
    st.sampled_from(
        [
            "",
            "expandable_segments:False",
            "max_split_size_mb:64,expandable_segments:False",
            "a:[1:2,3:4]",
        ]
    ),
    st.sampled_from(["run.sh", ".env"]),
    st.booleans(),
)
def test_the_allocators_variable_changes_and_can_be_undone(
    repository, around, how, quote, old, file, windows
):
    rows = [*around, f"{how}PYTORCH_CUDA_ALLOC_CONF={quote}{old}{quote}", *around]
    before = ("\r\n" if windows else "\n").join(rows).encode()
    edit = Edit(
        Site(file, len(around) + 1),
        "set_value",
        keyword="PYTORCH_CUDA_ALLOC_CONF",
        value="expandable_segments:True",
    )
    after = expect_exact(repository, before, [edit], file)
    assert len(after.splitlines()) == len(before.splitlines())
    assert b"expandable_segments:True" in after and b":False" not in after
    assert all(
        part in after.decode() for part in old.split(",") if not part.startswith("expandable")
    )
    expect_settled(after, [edit])
