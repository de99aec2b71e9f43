"""Where a program says how it accumulates: found for certain, or given up with a reason; and what
else hangs on it.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from auditor import patch
from auditor.evidence.table import Evidence
from auditor.extensions.verify.accumulation import Accumulation, Unclear, find
from auditor.model import Site
from auditor.recordings.folder import Recording
from auditor.recordings.row import Row
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.graph import BackwardRow

LOADER = "loader = DataLoader(data, batch_size=BATCH, shuffle=True)"
NUMBERS = "BATCH = 4\nEVERY = 8\n"
LOOP = """\
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / EVERY
    loss.backward()
    if (i + 1) % EVERY == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
TURNS = """\
for step in range(1000):
    for _ in range(EVERY):
        x, y = next(batches)
        loss = criterion(model(x), y)
        (loss / EVERY).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def program(
    loop: str = LOOP, numbers: str = NUMBERS, loader: str = LOADER, before: str = ""
) -> str:
    return (
        "\n".join(textwrap.dedent(part).rstrip("\n") for part in (numbers, before, loader, loop))
        + "\n"
    )


def recording(
    source: str,
    *,
    ran: int = 4,
    backwards: int = 8,
    samples: int | None = 3200,
    argv: str = "",
    **files: str,
) -> Any:
    """What an audit of ``train.py`` would have kept."""
    texts = {"train.py": source, **{name.replace("_", "."): text for name, text in files.items()}}
    made = next(
        number for number, line in enumerate(source.split("\n"), 1) if "DataLoader(" in line
    )
    rows: dict[str, list[Row]] = {
        "loaders": [LoaderRow(loader=0, made_at=1, batch_size=ran, samples=samples)],
        "batches": [BatchRow(pass_name="quiet", step=0, loader=0)],
        "backward": [
            BackwardRow(pass_name="loud", step=step, at=2, retain=False, n=backwards)
            for step in range(3)
        ],
    }
    manifest = {
        "sources": dict.fromkeys(texts, "kept"),
        "configs": [name for name in texts if not name.endswith(".py")],
        "argv": argv.split(),
    }
    kept = Recording(Path(), manifest)
    vars(kept).update(
        source_bytes=lambda file: texts[file].encode() if file in texts else None,
        original_bytes=lambda file: texts[file].encode() if file in texts else None,
        relative=lambda file: file,
        typed_rows=lambda part: rows[part],
        has=lambda part: part in rows,
        site=lambda number: Site("train.py", made, "", source.split("\n")[made - 1].strip()),
    )
    return kept


def found(source: str, **facts: Any) -> Accumulation:
    done = find(Evidence(recording(source, **facts)))
    assert done is not None
    return done


def patched(source: str, batch: int = 16, count: int = 2, **facts: Any) -> str:
    kept = recording(source, **facts)
    plan = patch.plan(found(source, **facts).edits(batch, count), kept.source_bytes)
    assert not plan.refused
    return b"".join(file.after for file in plan.files).decode()


OPTION = """\
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=8)
args = parser.parse_args()
"""
BY_OPTION = program(
    LOOP.replace("EVERY", "args.accumulate"),
    OPTION,
    LOADER.replace("BATCH", "args.batch_size"),
    'print(f"{args.accumulate} at a time")',
)
BY_NUMBER = program(LOOP.replace("EVERY", "8"), "", LOADER.replace("BATCH", "4"))
FORMS = {
    "constants": (program(), ("BATCH = 16", "EVERY = 2")),
    "turns": (program(TURNS), ("BATCH = 16", "EVERY = 2")),
    "numbers": (BY_NUMBER, ("batch_size=16", "% 2 == 0", "y) / 2")),
    "second": (program(loader="loader = DataLoader(data, BATCH)"), ("BATCH = 16",)),
    "options": (
        BY_OPTION,
        ('"--batch-size", type=int, default=16', '"--accumulate", type=int, default=2'),
    ),
    "divided in place": (program(LOOP.replace(" / EVERY", "\n    loss /= EVERY")), ("EVERY = 2",)),
    "flushed at the end": (
        program(LOOP.replace("== 0:", "== 0 or i + 1 == len(loader):")),
        ("EVERY = 2",),
    ),
    "a bar, and a mean": (
        program(
            "total = 0.0\n"
            + LOOP.replace("enumerate(loader)", 'tqdm(enumerate(loader), desc="x")')
            + "print(total / len(loader))"
        ),
        ("EVERY = 2",),
    ),
    "a counter named as a method": (
        program(LOOP.replace("for i,", "for step,").replace("(i +", "(step +")),
        ("EVERY = 2",),
    ),
    "losses that are kept for their mean": (
        program(
            "kept = []\n" + LOOP + "    kept.append(loss.item())\nprint(sum(kept) / len(kept))"
        ),
        ("EVERY = 2",),
    ),
    "a loss made whole again": (
        program(TURNS + "    log({'loss': loss.item() * EVERY})\n"),
        ("BATCH = 16", "EVERY = 2"),
    ),
    "its product": (
        program(before='print("effective", BATCH * EVERY)\neffective = BATCH * EVERY'),
        ("BATCH = 16",),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_both_numbers_are_found_where_they_are_written(form: str) -> None:
    source, expected = FORMS[form]
    done = found(source)
    assert (done.batch, done.count, done.said) == (4, 8, ())
    after = patched(source)
    assert all(part in after for part in expected), after
    assert found(after, ran=16, backwards=2).count == 2  # and found again


def test_in_a_configuration_file() -> None:
    source = program(
        LOOP.replace("EVERY", 'cfg["every"]'), "", LOADER.replace("BATCH", 'cfg["batch"]')
    )
    facts = {"train_yaml": "batch: 4  # samples\nevery: 8\n"}
    assert patched(source, **facts) == "batch: 16  # samples\nevery: 2\n"


GIVEN = {
    "both": ("--lr 3 --batch-size 2 --accumulate=16", "--lr 3 --batch-size 16 --accumulate=2", 0),
    "one": ("--accumulate 8", "--accumulate 2", 1),
    "the same as the default": ("--batch-size 4", "--batch-size 16", 1),
    "neither": ("--lr 3", "--lr 3", 2),
}


@pytest.mark.parametrize("name", GIVEN)
def test_what_the_command_line_gave_is_changed_there(name: str) -> None:
    argv, after, edits = GIVEN[name]
    ran, backwards = (2, 16) if name == "both" else (4, 8)
    done = found(BY_OPTION, argv=argv, ran=ran, backwards=backwards)
    assert (done.batch, done.count) == (ran, backwards)
    assert " ".join(done.arguments(16, 2)) == after
    assert len(done.edits(16, 2)) == edits


@pytest.mark.parametrize(
    "argv", ["--batch-size 4 --batch-size 4", "--batch-size few", "--accumulate"]
)
def test_a_command_line_that_is_not_plain_is_given_up(argv: str) -> None:
    with pytest.raises(Unclear):
        find(Evidence(recording(BY_OPTION, argv=argv)))


def test_a_call_that_is_one_micro_batch_is_no_step_of_the_search() -> None:
    step = """\
        def step():
            global seen
            x, y = next(batches)
            loss = criterion(model(x), y) / EVERY
            loss.backward()
            seen += 1
            if seen % EVERY == 0:
                optimizer.step()
                optimizer.zero_grad()
    """
    with pytest.raises(Unclear, match="each call of the target is one of 8 micro-batches"):
        find(Evidence(recording(program(step), backwards=1)))
    assert found(program(step)).count == 8  # an unmodified script: its steps are the optimizer's


SAID = {
    "logs": (
        program(LOOP + "    if i % 50 == 0:\n        print(i, loss.item())\n"),
        3200,
        "logs by the number of micro-batches",
    ),
    "ragged": (program(), 3210, "so it may end with another one"),
    "endless": (program(), None, "so it may end with another one"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_shifts_without_a_bearing_on_training_is_said(name: str) -> None:
    source, samples, said = SAID[name]
    done = found(source, samples=samples)
    assert len(done.said) == 1 and said in done.said[0]
    assert all(said in edit.reason and not edit.safe for edit in done.edits(8, 4))


EACH = "    {}\n"
GIVEN_UP = {
    "a schedule by micro-batches": (
        program(LOOP + EACH.format("scheduler.step()")),
        "runs once for each micro-batch",
    ),
    "an average of weights": (
        program(LOOP + EACH.format("ema.update(model)")),
        "runs once for each micro-batch",
    ),
    "checkpoints by the counter": (
        program(LOOP + "    if i % 500 == 0:\n        save(model)\n"),
        "`i` counts micro-batches",
    ),
    "another counter that decides": (
        program(LOOP + "    seen += 1\n    if seen > 1000:\n        break\n"),
        "`seen` counts micro-batches",
    ),
    "so many micro-batches": (
        program("for i in range(8000):\n" + LOOP.partition("\n")[2]),
        "does not simply go over its loader",
    ),
    "a part of the loader": (
        program(LOOP.replace("(loader)", "(islice(loader, 800))")),
        "does not simply go over its loader",
    ),
    "a schedule as long as the loader": (
        program(before="s = OneCycleLR(optimizer, 0.1, len(loader) * 3)"),
        "counts micro-batches",
    ),
    "as long as a list": (
        program(
            "kept = []\n" + LOOP + "    kept.append(loss)\n    if len(kept) > 80:\n        break"
        ),
        "counts micro-batches",
    ),
    "the count handed on": (
        program(before="train(loader, EVERY)"),
        "`EVERY` is also used",
    ),
    "the count in a schedule": (program(before="warmup = 100 * EVERY"), "`EVERY` is also used"),
    "the batch size in a rate": (
        program(before="rate = 0.1 * BATCH / 256"),
        "`BATCH` is also used",
    ),
    "the count handed to others": (program(before="engine.prepare(EVERY)"), "`EVERY` is also used"),
    "another number alike": (
        BY_NUMBER.replace("model(x)", "model(x.view(-1, 8))"),
        "`8` is also used",
    ),
    "no divisor": (program(LOOP.replace(" / EVERY", "")), "the loss is not divided by `EVERY`"),
    "set twice": (program(before="EVERY = 8"), "gets its value cannot be told"),
    "computed": (
        program(numbers="BATCH = 4\nEVERY = 32 // BATCH\n"),
        "gets its value cannot be told",
    ),
    "two of them": (program(LOOP + LOOP), "gradients are accumulated at train.py"),
    "a batch size of another loader": (
        program(loader="loader = make(DataLoader(data, **kwargs))"),
        "the call does not give the batch size",
    ),
}


@pytest.mark.parametrize("name", GIVEN_UP)
def test_what_is_not_certain_is_given_up_with_its_reason(name: str) -> None:
    source, why = GIVEN_UP[name]
    with pytest.raises(Unclear, match=why.replace("(", r"\(")):
        find(Evidence(recording(source)))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"ran": 32}, "train.py:1 says 4: it came from elsewhere"),
        ({"backwards": 4}, "says 8 micro-batches, and a step called backward 4 times"),
    ],
)
def test_what_ran_must_be_what_is_written(facts: dict[str, Any], why: str) -> None:
    with pytest.raises(Unclear, match=why):
        find(Evidence(recording(program(), **facts)))


SILENT = {
    "a step for each batch": LOOP.replace(
        "    if (i + 1) % EVERY == 0:\n        optimizer.step()\n        optimizer.zero_grad()",
        "    optimizer.step()",
    ),
    "a schedule every so often": LOOP.replace(
        "optimizer.step()\n        optimizer.zero_grad()", "scheduler.step()"
    ),
    "steps of a discriminator": TURNS.replace(
        "backward()\n", "backward()\n        optimizer.step()\n"
    ),
    "a single one": LOOP,
}


@pytest.mark.parametrize("name", SILENT)
def test_what_does_not_accumulate_is_left_alone(name: str) -> None:
    numbers = "BATCH = 4\nEVERY = 1\n" if name == "a single one" else NUMBERS
    assert find(Evidence(recording(program(SILENT[name], numbers), backwards=1))) is None
