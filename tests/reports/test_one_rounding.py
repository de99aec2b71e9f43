"""A rendered report, walked: each quantity has one value, one rounding and one spelling."""

import gzip
import json
import re
from html.parser import HTMLParser

import pytest
from auditor.reports import charts
from auditor.reports.html import Html
from auditor.reports.markdown import Markdown
from auditor.reports.terminal import Terminal

from auditor import amounts
from auditor.evidence.table import Evidence
from auditor.judging import build_report, catalogue, engine
from auditor.recordings import standalone
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.writer import store_sources
from tests.timeline import kineto

SOURCE = (
    "loader = DataLoader(data, batch_size=4)\n\nfor batch in loader:\n    step(batch.to(device))\n"
)
QUOTED = {"code", "pre", "script", "style", "details"}
"""What is not ours: source, patches, tracebacks, the manual."""

NUMBER = re.compile(r"(?<![\w.,<])(\d[\d,]*(?:\.\d+)?) ?(µs|us|ms|s|B|KiB|MiB|GiB|%)(?![\w/])")
SCALE = {
    "µs": 1.0,
    "us": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}


class Walker(HTMLParser):
    """The words of a page; ``only`` keeps those of one element."""

    def __init__(self, only=""):
        super().__init__()
        self.words: list[str] = []
        self._open: list[tuple[str, str, bool]] = []
        self._only = only

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "input", "wbr", "path", "br"):
            given = dict(attrs)
            quoted = tag in QUOTED and given.get("class") != "row"  # the row of a finding is ours
            self._open.append((tag, given.get("id") or "", quoted))

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        inside = not self._only or any(name == self._only for _, name, _ in self._open)
        if inside and not any(quoted for _, _, quoted in self._open):
            self.words.append(data)


def walked(page, only=""):
    walker = Walker(only)
    walker.feed(page.replace("<wbr>", ""))
    return " ".join(" ".join(walker.words).split())


def numbers(text):
    return [(match[1], match[2]) for match in NUMBER.finditer(text)]


def as_formatted(number, unit):
    value = float(number.replace(",", ""))
    if unit == "%":
        return amounts.percent(value / 100)
    if unit in ("B", "KiB", "MiB", "GiB"):
        return amounts.size(value * SCALE[unit])
    written = amounts.duration(value * SCALE[unit])
    return written.replace(" us", " µs") if unit == "µs" else written


def starving(folder):
    """20 steps of 100 ms, of which 30 ms wait for a loader, and one of 300 ms that waits 90."""
    (folder / "train.py").write_text(SOURCE)
    target = folder / "recording"
    target.mkdir()

    def rows(part, *lines):
        (target / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    us = [100_300.0 if n != 7 else 301_700.0 for n in range(21)]
    passes = [("warmup", n, 90_000.0) for n in range(5)] + [
        ("quiet", n, took) for n, took in enumerate(us)
    ]
    rows(
        "steps",
        *(
            {"pass": name, "step": n, "us": took, "host_us": took, "rss": 300 << 20}
            for name, n, took in passes
        ),
    )
    rows(
        "sites",
        *(
            {"id": n, "file": str(folder / "train.py"), "line": n, "function": "<module>"}
            for n in (1, 3)
        ),
    )
    rows(
        "loaders",
        {
            "loader": 0,
            "at": 3,
            "made_at": 1,
            "workers": 0,
            "length": 100,
            "pass": "quiet",
            "step": 0,
        },
    )
    rows(
        "batches",
        *(
            {"pass": "quiet", "step": n, "loader": 0, "n": 1, "wait_us": 0.3 * took}
            for n, took in enumerate(us)
        ),
    )
    sources = store_sources(target, str(folder), iter([str(folder / "train.py")]))
    manifest = {
        "schema": SCHEMA, "target": "train.py", "cwd": str(folder), "outcome": "completed", "device": "cpu", "steps": 21, "warmup": 5,
        "sources": sources, "recorded_at": "2026-01-01T00:00:00+00:00", "passes": [{"name": "warmup", "steps": 5}, {"name": "quiet", "steps": 21}],
    }  # fmt: skip
    write_manifest(target, manifest)
    return Recording(target)


def traced(folder):
    """12 steps in which a loader takes a third of the time, in two of them longer."""
    events, at = [], 0.0
    for number in range(12):
        wait = 3170.0 if number not in (4, 9) else 6330.0
        length = wait + 6010.0
        events += [
            kineto.note(f"ProfilerStep#{number + 10}", at, length),
            kineto.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, wait),
            kineto.op("aten::linear", at + wait + 10, 500.0),
            kineto.call("cudaLaunchKernel", at + wait + 20, 10.0, number + 1),
            kineto.kernel("gemm", at + wait + 40, 5900.0, number + 1),
        ]
        at += length + 5
    path = folder / "job.pt.trace.json.gz"
    path.write_bytes(gzip.compress(kineto.text(events).encode()))
    return standalone.TraceRecording(path)


def report_of(recording):
    rules, evidence = catalogue.rules(), Evidence(recording)
    return build_report.drawn(
        build_report.report(evidence, engine.judge(evidence, rules), rules), evidence
    )


@pytest.fixture(params=[starving, traced], ids=lambda made: made.__name__)
def report(request, tmp_path):
    return report_of(request.param(tmp_path))


def test_every_number_is_written_as_the_one_formatter_writes_it(report):
    for said in (walked(Html().render(report)), Terminal(width=10_000).render(report)):
        found = numbers(said)
        assert len(found) > 10
        assert [f"{n}{'' if u == '%' else ' '}{u}" for n, u in found] == [
            as_formatted(*each) for each in found
        ]


def test_the_loaders_share_is_one_number_in_text_table_chart_and_headline(report):
    page = Html().render(report)
    place = next(n for n, each in enumerate(report.findings, 1) if each.code == "DATA007")
    card = walked(page, f"finding-{place}")
    said = {number for number, unit in numbers(card) if unit == "%"}
    assert len(said) == 1, said
    assert card.count(f"{next(iter(said))}%") >= 2  # in the price and the message
    shared = f"({next(iter(said))}%)"
    others = [
        each
        for each in report.findings
        if each.basis == report.findings[place - 1].basis and each.lost_us_per_step
    ]
    if len(others) == 1:  # the headline adds up what there is
        assert shared in Terminal(width=200).render(report)
        assert shared in Markdown().render(report)
    drawn = [
        bar.label
        for bar in (report.parts.bars if report.parts is not None else ())
        if "loader" in bar.label
    ]
    assert all(label.endswith(f" {next(iter(said))}%") for label in drawn[:1])


def test_a_traces_steps_have_the_profilers_numbers(tmp_path):
    (line,) = report_of(traced(tmp_path)).series
    assert line.x == tuple(map(float, range(10, 22)))


@pytest.mark.parametrize(("quiet", "expected"), [(4, 8.0), (0, 4.0)])
def test_the_step_that_ended_the_run_is_marked_and_named_alike(tmp_path, quiet, expected):
    """The run raised in step 4 of the quiet pass (or its first): 4 of warm-up before it."""
    recording = starving(tmp_path)
    steps = [
        row for row in recording.rows("steps") if row["pass"] == "quiet" and row["step"] < quiet
    ]
    rows = [row for row in recording.rows("steps") if row["pass"] == "warmup"][:4] + steps
    (recording.folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    error = {
        "type": "ValueError",
        "message": "bad",
        "traceback": "",
        "step": quiet,
        "pass_name": "quiet",
        "file": "",
        "line": 0,
    }
    write_manifest(recording.folder, {**recording.manifest, "outcome": "raised", "error": error})
    report = report_of(Recording(recording.folder))
    assert report.run.error.step == expected
    drawn = charts.charts(report.series)
    assert [chart.ended.x for chart in drawn] == [expected] * len(drawn) != []
    assert drawn[0].data()["ended"] == {"x": expected, "label": "ValueError"}
    page = walked(Html().render(report))
    assert (
        f"in step {expected:g} (timing pass)" in page
        and f"step {expected:g} did not complete: ValueError" in page
    )
    assert f"in step {expected:g} (timing pass)" in Terminal().render(report)
