"""Values set in configuration files: all around them stays, what is not certain is refused."""

import json

import pytest

from auditor.patch import Refused, apply_edits, diff_bytes, plan

PATH = ["data", "num_workers"]
CONF = "PYTORCH_CUDA_ALLOC_CONF"

# name: (file, before, path, value, after)
# fmt: off
MADE = {
    "yaml": (
        "c.yaml", "# run\ndata:\n  batch: 8   # rows\n  num_workers: 0  # none yet\nnum_workers: x\n", PATH, "4",
        "# run\ndata:\n  batch: 8   # rows\n  num_workers: 4  # none yet\nnum_workers: x\n"),
    "yaml, in a list, no line at the end": (
        "c.yml", "- a\n- {pin: no, b: [1]}", [1, "pin"], "True", "- a\n- {pin: true, b: [1]}"),
    "yaml, as python writes it": ("c.yaml", "pin: False\n", ["pin"], "True", "pin: True\n"),
    "yaml, a key in quotes, windows": ("c.yaml", '"pin" : 0\r\nb: 1\r\n', ["pin"], "1", '"pin" : 1\r\nb: 1\r\n'),
    "yaml, a text that looks like it": (
        "c.yaml", "text: |\n  num_workers: 0\ndata:\n  num_workers: 0\n", PATH, "4",
        "text: |\n  num_workers: 0\ndata:\n  num_workers: 4\n"),
    "json": ("c.json", '{"data": {\n\t"num_workers":0}}', PATH, "4", '{"data": {\n\t"num_workers":4}}'),
    "json with a mark": ("c.json", '\ufeff{"a": false}', ["a"], "True", '\ufeff{"a": true}'),
    "toml": (
        "c.toml", "x = '''\n[data]\nnum_workers = 0\n'''\n[other]\nnum_workers = 0\n[data]\nnum_workers=0#\n", PATH, "4",
        "x = '''\n[data]\nnum_workers = 0\n'''\n[other]\nnum_workers = 0\n[data]\nnum_workers=4#\n"),
    "toml, dotted and inline": ("c.toml", "data.num_workers = 0\n", PATH, "4", "data.num_workers = 4\n"),
    "ini": (
        "c.ini", "[DEFAULT]\nworkers = 0\n[Train]\n; workers = 0\nworkers: 2\nPin = no ; yet\npin = off\n",
        ["Train", "workers"], "4", "[DEFAULT]\nworkers = 0\n[Train]\n; workers = 0\nworkers: 4\nPin = no ; yet\npin = off\n"),
    "ini, a flag": ("c.cfg", "[a]\npin = off\n", ["a", "pin"], "True", "[a]\npin = true\n"),
    "shell": (
        "run.sh", f"#!/bin/sh\nexport {CONF}=\npython t.py\n", CONF, "a:1", f"#!/bin/sh\nexport {CONF}=a:1\npython t.py\n"),
    "shell, other options stay": (
        "run.sh", f'X=1 {CONF}="expandable_segments:False,b:[1:2,3:4]" python t.py\n', CONF, "expandable_segments:True",
        f'X=1 {CONF}="expandable_segments:True,b:[1:2,3:4]" python t.py\n'),
    ".env": (".env", f"A=b\n{CONF}=max_split_size_mb:64\n", CONF, "c:d", f"A=b\n{CONF}=max_split_size_mb:64,c:d\n"),
}
# fmt: on

# name: (file, before, path, value, why)
LEFT = {
    "already so": ("c.yaml", "a: 4\n", ["a"], "4", "already"),
    "no such key": ("c.yaml", "a: 4\n", ["b"], "5", "no `b`"),
    "a mapping": ("c.yaml", "a: {b: 1}\n", ["a"], "5", "does not hold a single value"),
    "an anchor": ("c.yaml", "a: &x 4\n", ["a"], "5", "it is not clear where"),
    "an alias": ("c.yaml", "a: &x 4\nb: *x\n", ["b"], "5", "aliases"),
    "a tag": ("c.yaml", "a: !python/name:os.system 4\n", ["a"], "5", "does not parse"),
    "the key twice": ("c.json", '{"a": 1, "a": 1}', ["a"], "5", "twice"),
    "not json": ("c.json", "{a", ["a"], "5", "does not parse"),
    "on the next line": ("c.yaml", "a:\n  4\n", ["a"], "5", "it is not clear where"),
    "ini without a section": ("c.ini", "a = 1\n", ["a"], "5", "does not parse"),
    "not utf-8": ("c.toml", "a = 'ä'\nb = 1\n".encode("latin-1"), ["b"], "5", "not valid utf-8"),
    "text as the value": ("c.toml", "a = 1\n", ["a"], '"x"', "not a whole number"),
    "no place": ("c.toml", "a = 1\n", "a", "5", "not the place"),
    "another kind of file": ("c.txt", "a = 1\n", ["a"], "5", "of a kind that is known"),
    "another variable": ("run.sh", "PATH=x\n", "PATH", "y", "not a setting of the allocator"),
    "a command as the setting": (
        "run.sh",
        f"{CONF}=x\n",
        CONF,
        "$(rm)",
        "not a setting of the allocator",
    ),
    "set twice": ("run.sh", f"{CONF}=x\n{CONF}=y\n", CONF, "a:1", "it is not clear where"),
    "in a comment": ("run.sh", f"# {CONF}=x\n", CONF, "a:1", "does not stand where"),
    "printed": ("run.sh", f"echo {CONF}=x\n", CONF, "a:1", "does not stand where"),
    "computed": ("run.sh", f"{CONF}=$X\n", CONF, "a:1", "it is not clear where"),
}


def wish(edit, file, path, value, line=1, text=""):
    keyword = path if path == CONF or not isinstance(path, list) else json.dumps(path)
    return edit("set_value", line, file, text, keyword=keyword, value=value)


@pytest.mark.parametrize("name", MADE)
def test_made(name, edit, repository):
    file, before, path, value, after = MADE[name]
    planned = plan([wish(edit, file, path, value)], lambda _: before.encode())
    assert not planned.refused
    assert planned.files[0].after.decode() == after
    repository.put(file, before.encode())
    repository.expect_applies(planned.diff, {file: after.encode()})
    with pytest.raises(Refused, match="already"):
        apply_edits(after.encode(), [wish(edit, file, path, value)])
    repository.expect_applies(
        diff_bytes(after.encode(), before.encode(), file), {file: before.encode()}
    )


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name, edit):
    file, before, path, value, why = LEFT[name]
    with pytest.raises(Refused, match=why):
        apply_edits(
            before if isinstance(before, bytes) else before.encode(),
            [wish(edit, file, path, value)],
        )


def test_several_values_of_one_file(edit):
    edits = [wish(edit, "c.yaml", ["a"], "3"), wish(edit, "c.yaml", ["b"], "True", 2, "b: false")]
    assert apply_edits(b"a: 1\nb: false\n", edits) == b"a: 3\nb: true\n"
    with pytest.raises(Refused, match="another value"):
        apply_edits(b"a: 1\nb: false\n", [*edits, wish(edit, "c.yaml", ["a"], "7")])
    with pytest.raises(Refused, match="not what it was"):
        apply_edits(b"a: 1\nb: true\n", edits)


def test_no_edits_of_python_in_it(edit):
    with pytest.raises(Refused, match="no edits of Python"):
        apply_edits(b"a: 1\n", [wish(edit, "c.yaml", ["a"], "3"), edit("detach", 1, "c.yaml")])
