"""Work of judging: it grows with the user's files and with what was seen in them, not with the
product or the square of these.
"""

import json
import sys

import pytest

from auditor.evidence.source.files import Source, Span
from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.model import Edit, Site
from auditor.patch import plan
from auditor.patch.module import parse
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.schema import PARTS
from auditor.recordings.writer import store_sources

FUNCTION = """
def work_{i}(model, batch, state):
    total = 0.0
    kept = []
    out = model(batch)
    state.bank_{i} = torch.cat([state.bank_{i}, out])
    width = torch.zeros(3, dtype=kind) / out.sum()
    for name in state.names:
        kept.append(out.detach())
        value = width.item()
        total = total + value
        try:
            scaler.scale(out).backward()
        except RuntimeError as error:
            print("out of memory", error)
    scores = torch.stack(kept)
    if scores.max() > state.best:
        state.best = scores.max()
    optimizer.step()
    optimizer.zero_grad()
    return math.log(total)
"""
LINES = FUNCTION.count("\n")
READS = tuple(
    1 + FUNCTION.split("\n").index(line)
    for line in (
        "        value = width.item()",
        "    if scores.max() > state.best:",
        "        state.best = scores.max()",
        "    return math.log(total)",
    )
)
READ = READS[0]
AT_MOST = 5.2
"""Times the work for four times the functions; a square is sixteen times."""


def work(act) -> int:
    """Calls of functions, in Python and in C, while ``act`` runs."""
    count = 0

    def seen(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def text(functions: int, tag: str) -> str:
    return f"# {tag}\n" + "".join(FUNCTION.format(i=i) for i in range(functions))


def recording(
    tmp_path,
    functions: int,
    tag: str,
    read: int | None = None,
    steps: int = 4,
    lines: tuple[int, ...] = (READ,),
) -> Recording:
    """Of a rehearsal that read a value on these lines of each function, or of the first ``read``, and
    whose other probes saw nothing.
    """
    folder = tmp_path / f"{tag}{functions}"
    folder.mkdir()
    source = tmp_path / f"{tag}{functions}.py"
    source.write_text(text(functions, tag))
    for part in PARTS:
        (folder / f"{part}.jsonl").write_text("")
    rows = {
        "sites": [
            {"id": i * len(lines) + n, "file": str(source), "line": 1 + i * LINES + line}
            | {"function": f"work_{i}"}
            for i in range(functions)
            for n, line in enumerate(lines)
        ],
        "steps": [{"pass": "loud", "step": i, "us": 1e3, "host_us": 1e3} for i in range(steps)],
        "reads": [
            {"pass": "loud", "step": step, "at": i, "kind": "item", "n": 1}
            for i in range((functions if read is None else read) * len(lines))
            for step in range(steps)
        ],
        "enclosing": [],
    }
    for part, found in rows.items():
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in found))
    stored = store_sources(folder, str(tmp_path), iter([str(source)]))
    manifest = {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed", "sources": stored}
    write_manifest(folder, manifest | {"device": "rehearse", "parts": sorted(PARTS)})
    return Recording(folder)


def test_all_rules(tmp_path):
    def judged(functions: int, tag: str) -> int:
        evidence = Evidence(recording(tmp_path, functions, tag))
        told: list[engine.Judgement] = []
        calls = work(lambda: told.append(engine.judge(evidence, catalogue.own_rules())))
        assert not [verdict for verdict in told[0].verdicts if verdict.status == "failed"]
        assert len(told[0].findings) >= functions
        return calls

    judged(2, "warm")  # imports
    assert judged(80, "many") < AT_MOST * judged(20, "few")


@pytest.mark.parametrize(
    "ask",
    [
        lambda source, file, lines: [
            source.node_at(file, Span(line + READ, line + READ, 16, 28)) for line in lines
        ],
        lambda source, file, lines: [source.called(Site(file, line), "item") for line in lines],
    ],
    ids=["node", "call"],
)
def test_questions_about_lines(ask):
    def asked(functions: int, tag: str) -> int:
        source = Source({"a.py": text(functions, f"{tag} {ask}")})
        return work(lambda: ask(source, "a.py", range(1, functions * LINES, LINES)))

    asked(2, "warm")
    assert asked(160, "many") < AT_MOST * asked(40, "few")


def test_one_long_line():
    """A file of 1.4 MB in one line is looked through once, however many reads are in it."""

    def asked(values: int) -> int:
        source = Source({"a.py": "; ".join(["x = y.item()"] * values)})
        spans = [Span(1, 1, 14 * i + 4, 14 * i + 12) for i in range(values)]
        return work(lambda: [source.node_at("a.py", span) for span in spans])

    assert asked(4000) < AT_MOST * asked(1000)


def test_edits_that_are_refused():
    """Of many edits some are refused: the file is not parsed for each of the others."""
    raw = "".join(f"DataLoader(d{i})\nother(d{i})\n" for i in range(128)).encode()
    wanted = [
        Edit(Site("a.py", 2 * i + 1 + (i == 77)), "set_keyword", "DataLoader", "num_workers", "4")
        for i in range(128)
    ]
    parsed: list[int] = []

    def counted(frame, event, arg):
        if event == "call" and frame.f_code is parse.__code__:
            parsed.append(1)

    sys.setprofile(counted)
    try:
        found = plan(wanted, {"a.py": raw}.get)
    finally:
        sys.setprofile(None)
    assert len(found.refused) == 1 and len(found.files) == 1
    assert len(parsed) < 40
