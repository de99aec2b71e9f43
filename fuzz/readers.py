"""What `audit` does with one file of a stranger, in this process: read it, judge it, write the
report.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from auditor.cli import analyze, fix, open_input, tensorboard_files, write_results
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.checkpoints import command as checkpoints
from auditor.extensions.checkpoints import settings as checkpoint_settings
from auditor.extensions.checkpoints.command import CheckpointRecording
from auditor.extensions.checkpoints.files import scans_of
from auditor.extensions.checkpoints.reading import NotACheckpoint
from auditor.extensions.tensorboard_tab.pages import Pages
from auditor.extensions.verify import compare_command as compare
from auditor.judging import catalogue, config
from auditor.model import Report
from fuzz import seeds

ALLOWED = (AuditProblem, NotACheckpoint)
"""How a reader refuses a file: one sentence, exit code 2."""

FORMATS = ("json", "html", "terminal", "sarif", "markdown", "junit", "github")

ROUTES = ("runs", "findings", "report", "trace", "page.html", "nothing")
"""Pages of `audit view` in which something of a stranger stands."""

QUERIES = (
    "",
    "run=",
    "run=../..",
    "run=%00",
    "run=%ff%fe",
    "run=a&run=b",
    "%",
    "run=" + "a" * 5000,
    "run=run%0d%0aX-Bad: 1",
)


class Failed(Exception):
    """A reader did what none should; the message says what."""


def warm() -> None:
    """Import everything that reading needs, so that each fork has it: what an analysis of a trace
    needs is most of it.
    """
    from auditor.extensions.checkpoints import walk  # noqa: F401 - and torch with it

    catalogue.rules()
    for name in FORMATS:
        catalogue.renderer(name)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "trace.json"
        path.write_bytes(next(content for kind, content in seeds.seeds() if kind == "trace"))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            _analyze(path)


def read_one(kind: str, path: Path) -> None:
    """Raises :class:`Failed`, or whatever a reader lets out."""
    try:
        READERS[kind](path)
    except ALLOWED as problem:
        if "\n" in str(problem) or not str(problem):
            raise Failed(f"a refusal that is not one line: {str(problem)[:200]!r}") from None


def _analyze(path: Path, *, own: bool = True) -> None:
    """As `audit analyze PATH --out FOLDER --format ...`: judge, draw, write report.json,
    report.html, tensorboard/ and the formats.
    """
    evidence = analyze._open(path)
    report = write_results.judge(evidence, catalogue.choose((), ()), config.Settings())
    _delivered(report, evidence, own=own)


def _delivered(report: Report, evidence: Evidence, *, own: bool) -> None:
    _require_judged(report, own=own)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        formats = [(each, str(out / each)) for each in FORMATS]
        write_results.deliver(report, evidence, out, formats, quiet=False, tensorboard=True)
        page = (out / "report.html").read_text("utf-8")
    said = getattr(sys.stderr, "getvalue", str)()
    if MEMORY in said or MEMORY in page:
        raise Failed(
            "it takes too much memory: " + (said or page[page.index(MEMORY) - 100 :])[:500]
        )
    if own and (NOT_DRAWN in page or INCOMPLETE in said):
        raise Failed(
            "a chart or tensorboard/ failed: " + (said or page[page.index(NOT_DRAWN) - 100 :])[:500]
        )


NOT_DRAWN, INCOMPLETE = " cannot be drawn: ", " is incomplete: "
"""What is said where something of ours failed and the report goes on without it."""

MEMORY = "MemoryError"
"""What stands there where it took all memory: that fails, whatever was read."""


def _recording(path: Path) -> None:
    """A rule that fails on a row that no probe writes is a verdict *failed*, and no failure of the
    reader.
    """
    _analyze(path, own=False)


def _checkpoint(path: Path) -> None:
    """As `audit checkpoint FILE --out FOLDER`."""
    (scan,) = scans_of((path,))
    if isinstance(scan, NotACheckpoint):
        raise scan
    evidence = Evidence(CheckpointRecording((scan,)))
    rules = tuple(filter(checkpoints.asks_for_checkpoints, catalogue.choose((), ())))
    report = write_results.judge(evidence, rules, config.Settings())
    checkpoints._show(evidence, report)
    _delivered(report, evidence, own=True)


def _report(path: Path) -> None:
    """A report read back: rendered, compared with itself, and its patches planned."""
    report = open_input.report_of(path)
    for name in FORMATS:
        catalogue.renderer(name).render(report)
    with tempfile.TemporaryDirectory() as folder:
        tensorboard_files.write_scalars(report, (), Path(folder))
    for command in (
        lambda: compare.run(before=str(path), after=str(path), max_regression=0.05, as_json=False),
        lambda: fix.fix(report=str(path), apply=False, check=False, select=(), unsafe=True),
    ):
        with contextlib.suppress(AuditProblem):
            command()


def _view(root: Path) -> None:
    """All pages of `audit view`, of all runs that it lists, and of none."""
    pages = Pages(root)
    runs = json.loads(_asked(pages, "runs", ""))["runs"]
    for query in (
        *QUERIES,
        *(urlencode({"run": run["name"]}, errors="surrogatepass") for run in runs),
    ):
        for route in ROUTES:
            body = _asked(pages, route, query)
            if route == "findings" and body[:1] == b"{":
                json.loads(body)


def _asked(pages: Pages, route: str, query: str) -> bytes:
    """The body of an answer, which is a page or a refusal."""
    given: list[tuple[str, list[tuple[str, str]]]] = []
    environ = {"REQUEST_METHOD": "GET", "QUERY_STRING": query, "PATH_INFO": f"/{route}"}
    body = b"".join(
        pages.answer(route, environ, lambda status, headers: given.append((status, headers)))
    )
    ((status, headers),) = given
    if status not in ("200 OK", "404 Not Found") or any(
        "\n" in value or "\r" in value for _, value in headers
    ):
        raise Failed(f"{route}?{query[:100]} is answered with {status} and {headers}")
    return body


def _config(path: Path) -> None:
    checkpoint_settings.read(path)


def _require_judged(report: Report, *, own: bool) -> None:
    failed = [
        f"{verdict.code}: {verdict.reason}"
        for verdict in report.verdicts
        if verdict.status == "failed"
    ]
    failed = failed if own else [each for each in failed if MEMORY in each]
    if failed:
        raise Failed(f"a rule failed: {failed[0][:500]}")


READERS = {
    "trace": _analyze,
    "snapshot": _analyze,
    "rank": _analyze,
    "ranks": _analyze,
    "recording": _recording,
    "ranked": _recording,
    "checkpoint": _checkpoint,
    "report": _report,
    "config": _config,
    "view": _view,
}
