"""One test for all rules: each marked line of ``fires.py`` is reported, and no other; nothing in
``silent.py`` is. The two examples of a rule's page are cases, too: these files hold what they do not.

A folder ``tests/rules/<code>/`` holds factories: functions without arguments that return a step
(``losses`` and ``case_of`` of ``programs.py`` make them of a function that returns a loss).
``# CODE`` on a line means that this very line must be reported, by the rule of the folder or by any
other rule that needs no more recorded: those judge the same recording, and say nothing else. Names ending in ``__cuda`` need a
GPU: where there is none, the recording that ``tests/gpu/record.py`` made on one is judged instead,
and fails the test if the case was changed since; until there is one, the case is rehearsed if its
rule can be. Names ending in ``__rehearsal`` are rehearsed always. Factories whose names end in
``__trace`` return the text of a small Kineto trace instead (``tests/timeline/kineto.py`` builds
them), which is judged as a trace that stands alone: a finding's place, if it has one, is a function
of the trace, so no line is marked. ``__ranks`` is the same with a list of texts, the traces of a
job's ranks. ``__processes`` cases are recorded as rank 0 and as rank 1 of two
(``tests/echo_group.py``). Where a case of ``silent.py`` ends in ``__no_note``,
no note is right, either. ``MEMORY_LIMIT`` of a file is the size of its rehearsed card in bytes, ``HOST_ROOM``
the RAM that its machine has beyond what the process holds at the start.
"""

import ast
import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.util
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from auditor.rules.torch_says import TorchSays

from auditor import rules
from auditor.evidence.table import BROKEN_PROBE, Evidence
from auditor.judging import catalogue, engine
from auditor.judging.catalogue import SECTIONS, page
from auditor.model import Finding, Severity, Verdict
from auditor.recordings.folder import TRACE, Recording
from auditor.recordings.standalone import RankedTraces, TraceRecording
from auditor.recordings.writer import MANIFEST
from auditor.rule import FAMILIES, Rule
from auditor.timeline import fleet, trace_files
from tests import recordings
from tests.inprocess import judge
from tests.leftover_workers import end_workers
from tests.rules import programs
from tests.rules.asking import sound

# cases are programs of users: what torch warns them of is theirs
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

HERE = Path(__file__).resolve().parent
RULES = {rule.code: rule for rule in catalogue.rules()}
CUDA = torch.cuda.is_available()
TRACED = ("__trace", "__ranks")
OURS = {
    f"{'/'.join(file.parts[-2:])}:"
    for package in ("auditor", "rules")
    for file in (HERE.parents[1] / package).rglob("*.py")
}
"""Our own files as findings would name them."""


def factories(path: Path) -> dict[str, tuple[int, int]]:
    """Public functions of a file by name, with their first and last line."""
    if not path.is_file():
        return {}
    body = ast.parse(path.read_text()).body
    return {
        n.name: (n.lineno, n.end_lineno or 0)
        for n in body
        if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    }


QUIET = frozenset(
    """
    nothing_to_write_in_a_long_step slow_collate_function
    time_in_a_helper_of_a_worker sampler_that_searches_its_list_for_each_batch
    """.split()
)
"""Cases that need a machine which does nothing else: looks at a loader's Python that come late are
left out, so that its line is not known, and a write takes longer while others write. ``make
test-slow`` has them.
"""


def cases(kind: str) -> list[pytest.param]:
    found = []
    for code in RULES:
        for name in factories(HERE / code.lower() / f"{kind}.py"):
            marks = pytest.mark.slow if name in QUIET else ()
            found += [pytest.param(code, name, id=f"{code}-{name}", marks=marks)]
    return found


def load(path: Path) -> object:
    name = f"case_{path.parent.name}_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def roots(path: Path) -> list[Path]:
    """What is the user's of a case: its file, and the parts of programs that it imports."""
    shared = Path(programs.__file__)
    return [path, *([shared] if f"from {programs.__name__} import" in path.read_text() else [])]


def unload(path: Path) -> None:
    """Forget a case's module: what it holds must not be there when the next one is recorded."""
    if sys.modules.pop(f"case_{path.parent.name}_{path.stem}", None) is None:
        return
    end_workers()
    gc.collect()
    give_back()


def give_back() -> None:
    """Return freed heap to the system: a case that grows must grow the resident set, not fill what
    earlier cases left.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reported(
    code: str, path: Path, name: str, folder: Path, beside: tuple[type[Rule], ...] = ()
) -> tuple[set[int], list[str]]:
    """Lines reported for a case (relative to its own first line), and what is louder than a note
    (or than nothing, for a rule of notes).
    """
    if name.endswith(TRACED):
        findings, verdicts = in_trace(code, path, name, folder)
    elif name.endswith("__cuda") and not CUDA:
        findings, verdicts = replayed(code, path, name, folder)
    else:
        device = "rehearse" if name.endswith("__rehearsal") else "auto"
        try:
            machine = {
                "memory_limit": getattr(load(path), "MEMORY_LIMIT", None),
                "host_room": getattr(load(path), "HOST_ROOM", None),
            }
            findings, verdicts = judge(
                folder,
                getattr(load(path), name),
                (RULES[code],),
                beside,
                roots=roots(path),
                device=device,
                steps=getattr(load(path), "STEPS", 12),
                ranks=name.endswith("__processes"),
                **machine,
            )
        finally:
            unload(path)
    assert verdicts[0].status != "failed", verdicts[0].reason
    assert not verdicts[0].reason.startswith(BROKEN_PROBE), verdicts[0].reason
    for finding in findings:
        sound(finding, code)
    said = " ".join(f"{f.site} {f.message} {f.facts} {f.places}" for f in findings)
    assert not [name for name in OURS if name in said], "a file of the auditor is named"
    loud = [
        f
        for f in findings
        if f.severity is not Severity.NOTE or RULES[code].severity is Severity.NOTE
    ]
    return {f.site.line if f.site else 0 for f in findings}, [
        f"{f.severity.value} {f.site}: {f.message}" for f in loud
    ]


def in_trace(code: str, path: Path, name: str, folder: Path) -> tuple[list[Finding], list[Verdict]]:
    """Judge the trace that a case wrote; places are set aside (they lie in files that only the
    trace knows).
    """
    folder.mkdir()
    made = getattr(load(path), name)()
    for number, content in enumerate([made] if isinstance(made, str) else made):
        (folder / f"rank{number}.json").write_text(content)
    alone = isinstance(made, str)
    recording = (
        TraceRecording(folder / "rank0.json")
        if alone
        else RankedTraces(folder, fleet(trace_files(folder)))
    )
    judgement = engine.judge(Evidence(recording), (RULES[code],))
    return [replace(finding, site=None) for finding in judgement.findings], list(judgement.verdicts)


def replayed(code: str, path: Path, name: str, folder: Path) -> tuple[list[Finding], list[Verdict]]:
    packed = recordings.path_of(code, path.stem, name)
    if not packed.is_file() and RULES[code].rehearsed:
        make = getattr(load(path), name)
        return judge(folder, make, (RULES[code],), roots=roots(path), device="rehearse")
    if not packed.is_file():
        pytest.skip(
            "needs a CUDA device, and no recording of it was made yet (tests/gpu/record.py)"
        )
    recording = recordings.unpack(packed, folder)
    assert recording.manifest["case"] == recordings.fingerprint(path, name), (
        "the case changed: record it again on a GPU"
    )
    judgement = engine.judge(Evidence(recording), (RULES[code],))
    return list(judgement.findings), list(judgement.verdicts)


def marked_in(path: Path, code: str, name: str) -> set[int]:
    """Lines of a case that must be reported."""
    first, last = factories(path)[name]
    lines = path.read_text().splitlines()
    return {n for n in range(first, last + 1) if f"# {code}" in lines[n - 1]}


BY_THE_CLOCK = frozenset(
    "CKPT004 COMP005 COMP006 DATA007 DATA010 DATA012 KERN006 KERN007 SYNC009 TIME004".split()
)
"""Rules that weigh times: what they say of a case of another rule hangs on who else runs here."""


@functools.cache
def answered_by(code: str) -> tuple[type[Rule], ...]:
    """The other rules that need no more recorded than this one."""
    recorded = set(engine.parts_of((RULES[code],)))
    needs = {rule: set(engine.parts_of((rule,))) for rule in RULES.values()}
    return tuple(
        rule
        for rule, parts in needs.items()
        if parts and parts <= recorded and rule.code not in BY_THE_CLOCK | {code}
    )


def said_beside(code: str, path: Path, name: str, folder: Path) -> set[tuple[int, str]]:
    """What those say of the same recording, louder than a note: line and rule, the line of the
    ``def`` where a finding has none.
    """
    if name.endswith((*TRACED, "__cuda", "__processes")) or not (folder / MANIFEST).is_file():
        return set()
    found = engine.judge(Evidence(Recording(folder)), answered_by(code)).findings
    return {
        (each.site.line if each.site else factories(path)[name][0], each.code)
        for each in found
        if each.severity is not Severity.NOTE
    }


def marked_beside(path: Path, code: str, name: str) -> set[tuple[int, str]]:
    first, last = factories(path)[name]
    lines = path.read_text().splitlines()
    told = (line.partition("  # ")[2] for line in lines[first - 1 : last])
    return {
        (number, word)
        for number, comment in enumerate(told, first)
        for word in re.findall(r"\b[A-Z]+\d{3}\b", comment)
        if word != code and word in RULES
    }


@pytest.mark.parametrize(("code", "name"), cases("fires"))
def test_fires_on_the_very_line(code: str, name: str, tmp_path: Path) -> None:
    path = HERE / code.lower() / "fires.py"
    marked = marked_in(path, code, name)
    recording, found, loud = tmp_path, set[int](), False
    for number in range(TRIES if code in BY_TIMES else 1):
        recording = tmp_path / f"recording{number}"
        found, loud = reported(code, path, name, recording)
        if found:
            break
    assert found == (marked or {0})
    assert loud or not name.endswith(TRACED), "a trace that fires must do so louder than a note"
    assert said_beside(code, path, name, recording) == marked_beside(path, code, name)


@pytest.mark.parametrize(("code", "name"), cases("silent"))
def test_stays_silent(code: str, name: str, tmp_path: Path) -> None:
    path = HERE / code.lower() / "silent.py"
    found, loud = reported(code, path, name, tmp_path / "recording")
    assert not loud
    assert not found or not name.endswith("__no_note")
    assert said_beside(code, path, name, tmp_path / "recording") == marked_beside(path, code, name)


ODD = {
    "handed_on_beside_the_module_and_called_by_nobody": "reads the file of this harness, too",
    "resized_at_random__rehearsal": "its small memory is enlarged, and that of our probes with it",
}
"""Cases that tell more of the harness than of the probes."""


def recorded(kind: str) -> list[pytest.param]:
    """Cases that are recorded here: the first of some rules, all where tests may take minutes."""
    endings, seen, found = (*TRACED, "__cuda", "__processes"), set[str](), []
    for code, name in (case.values for case in cases(kind)):
        if name.endswith(endings) or name in ODD:
            continue
        quick = kind == "fires" and code.startswith(("WASTE", "NUM", "GRAPH", "OPT"))
        first = quick and (code not in seen or name.startswith("gan_"))
        seen.add(code)
        marks = () if first else pytest.mark.slow
        found.append(pytest.param(kind, code, name, marks=marks, id=f"{code}-{kind}-{name}"))
    return found


@pytest.mark.full
@pytest.mark.parametrize(("kind", "code", "name"), recorded("fires") + recorded("silent"))
def test_no_probe_silences_another(kind: str, code: str, name: str, tmp_path: Path) -> None:
    """With the probes of all rules, each case gives what it gives with those of its own rule."""
    path = HERE / code.lower() / f"{kind}.py"
    found, loud = reported(code, path, name, tmp_path / "recording", tuple(RULES.values()))
    if kind == "fires":
        assert found == (marked_in(path, code, name) or {0})
    else:
        assert not loud


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_a_positive_and_three_near_misses(code: str) -> None:
    """Of these the examples of its page are one each, where they run."""
    if issubclass(RULES[code], TorchSays):
        return  # the examples of its page are its cases; the others' are in test_torch_says.py
    shown = not blocks(code)["Example"].startswith("# needs: ranks")
    assert len(factories(HERE / code.lower() / "fires.py")) + shown >= 1
    assert len(factories(HERE / code.lower() / "silent.py")) + shown >= 3


def blocks(code: str) -> dict[str, str]:
    """The Python blocks of a manual page, by their section."""
    found, section, inside = {}, "", None
    for line in page(RULES[code]).splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("```python"):
            inside = []
        elif line.startswith("```") and inside is not None:
            found[section], inside = "\n".join(inside), None
        elif inside is not None:
            inside.append(line)
    return found


@pytest.mark.parametrize("code", RULES)
def test_manual_has_its_sections_in_order(code: str) -> None:
    headings = [line[3:] for line in page(RULES[code]).splitlines() if line.startswith("## ")]
    headings = [heading for heading in headings if heading != "Knobs"]
    assert headings == [section for section in SECTIONS if section in headings]
    assert set(SECTIONS) - set(headings) <= {"Sources"}


def example(
    code: str, section: str, folder: Path
) -> tuple[str, tuple[Finding, ...], tuple[Verdict, ...]] | str:
    """An example of a page, what its rule finds in it and the verdict; or what it needs here."""
    text = textwrap.dedent(blocks(code)[section])
    compile(text, f"{code} {section}", "exec")  # also where what it needs is missing
    needs, _, limit = (
        text.partition("\n")[0].removeprefix("# needs: ").partition(" --memory-limit ")
    )
    if needs == "ranks":
        return "needs several processes, each with a GPU"
    if needs == "cuda" and not CUDA and not RULES[code].rehearsed:
        return "needs a CUDA device"
    device = "rehearse" if needs == "rehearsal" or (needs == "cuda" and not CUDA) else "auto"
    memory = int(limit.removesuffix("MiB")) * 2**20 if limit else None
    machine = {"host_room": memory} if needs == "host" else {"memory_limit": memory}
    path = folder / f"manual_{code}_{section.replace(' ', '_')}.py"
    path.write_text(text + "\n")
    asks_a_trace = any(TRACE in table.files for table in engine.evidence_of(RULES[code]).values())

    def make() -> Callable:
        unload(path)  # a replay begins with the program as it was
        module = load(path)
        return module.make() if hasattr(module, "make") else module.step

    try:
        traced = {"trace_steps": 5} if asks_a_trace else {}
        for number in range(TRIES if code in BY_TIMES and section == "Example" else 1):
            findings, verdicts = judge(
                folder / f"recording{number}",
                make,
                (RULES[code],),
                roots=[path],
                device=device,
                **machine,
                **traced,
            )
            if findings:
                break
    finally:
        unload(path)
    return text, tuple(findings), tuple(verdicts)


@pytest.mark.parametrize("code", RULES)
@pytest.mark.parametrize("section", ["Example", "Use instead"])
def test_the_manuals_examples_do_what_they_say(code: str, section: str, tmp_path: Path) -> None:
    made = example(code, section, tmp_path)
    if isinstance(made, str):
        pytest.skip(made)
    text, findings, verdicts = made
    assert verdicts[0].status != "failed", verdicts[0].reason
    said = verdicts[0].reason or [finding.message for finding in findings]
    assert bool(findings) == (section == "Example"), said
    lines = enumerate(text.splitlines(), 1)
    if marked := {number for number, line in lines if line.endswith(f"# {code}")}:
        assert {found.site.line for found in findings if found.site} == marked


BY_TIMES, TRIES = {"COMP006", "KERN007"}, 3
"""Rules that compare two times, which another program on the machine may blur: silence of one try is
right then.
"""


def test_words_of_one_letter_stand_alone_in_the_names_of_rules() -> None:
    assert RULES["GRAPH010"].name() == "tensor-made-of-a-tensor"
    assert RULES["SYNC001"].name() == "scalar-read-every-step"


def test_rules_come_by_family_and_number() -> None:
    codes = [rule.code for rule in catalogue.own_rules()]
    assert codes == sorted(
        codes, key=lambda code: (FAMILIES.index(code.rstrip("0123456789")), code)
    )


def test_each_page_of_the_manual_is_a_rules() -> None:
    pages = (HERE.parent.parent / "rules").glob("*/manual/*.md")
    assert sorted(page.stem for page in pages) == sorted(
        rule.code for rule in catalogue.own_rules()
    )


RULE = "from auditor.rule import Rule\nclass {cls}(Rule):\n    code = {code!r}\n"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"sync/sync001_one": "SYNC001", "sync/sync001_two": "SYNC001"},
            "sync.sync001_one and sample_rules.sync.sync001_two both define SYNC001",
        ),
        ({"sync/sync001_one": "SYNC002"}, "sync001_one defines SYNC002, not SYNC001 alone"),
        ({"sync/sync001_one": ""}, "sync001_one defines no rule, not SYNC001 alone"),
        ({"sync/waits": "MEM001"}, "sync.waits defines MEM001, which is not of SYNC"),
        ({"acme/acme001_one": "ACME001"}, "acme is no family of the manual"),
    ],
    ids=["one code twice", "another code", "no rule", "another family", "no family"],
)
def test_a_rule_that_its_file_does_not_name_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], said: str
) -> None:
    for file, code in files.items():
        path = tmp_path / "sample_rules" / f"{file}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(RULE.format(cls="Sample", code=code) if code else "")
    (tmp_path / "sample_rules" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("sample_rules")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(TypeError, match=said):
        rules.find(importlib.import_module("sample_rules"))
