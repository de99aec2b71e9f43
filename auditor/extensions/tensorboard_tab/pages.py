"""The pages as WSGI applications, one a route: the tab mounts them in TensorBoard."""

import base64
import functools
import hashlib
import html
import importlib.util
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from auditor import amounts
from auditor.judging import catalogue
from auditor.model import Report

from .runs import RunFolder, runs_in

ASSETS = Path(__file__).parent / "assets"
BLOCK = 1 << 20

_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src "
    "'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
)
_HASHES = re.compile(r"script-src ((?:'sha256-[A-Za-z0-9+/=]{44}' ?)+);")
_HEAD = 4096
"""Bytes of a report's page in which its own policy is looked for."""

Headers = list[tuple[str, str]]
StartResponse = Callable[[str, Headers], Any]


class NotThere(Exception):
    """What was asked for does not exist; the message is shown."""


@dataclass(frozen=True)
class Reply:
    """A body and how to read it. ``policy`` is a content security policy, which every page has."""

    body: Iterable[bytes]
    kind: str
    policy: str = ""
    encoding: str = ""


class Pages:
    """The pages of the runs below one folder. Only files that :class:`RunFolder` names are read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.routes: dict[str, Callable[[str], Reply]] = {
            "runs": lambda _: _json({"runs": [_described(run) for run in self.runs()]}),
            "findings": self._findings,
            "report": self._report,
            "trace": self._trace,
            "viewer": self._viewer,
        }
        for path in sorted(ASSETS.iterdir()):
            self.routes[path.name] = _Asset(path)

    def answer(
        self, route: str, environ: dict[str, Any], start_response: StartResponse
    ) -> Iterable[bytes]:
        """The WSGI application of one route; ``?run=NAME`` says which run."""
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return refused("405 Method Not Allowed", "only GET", start_response)
        names = parse_qs(environ.get("QUERY_STRING", "")).get("run", [""])
        try:
            reply = self.routes[route](names[0])
        except (NotThere, KeyError) as problem:
            return refused("404 Not Found", str(problem.args[0]), start_response)
        start_response("200 OK", _headers(reply))
        return reply.body

    def runs(self) -> tuple[RunFolder, ...]:
        """The runs that are shown."""
        return runs_in(self.root)

    def _run(self, name: str) -> RunFolder:
        for run in self.runs():
            if run.name == name:
                return run
        raise NotThere(f"there is no run {name!r}")

    # -- data --------------------------------------------------------------------------------------

    def _findings(self, name: str) -> Reply:
        report = _loaded(self._run(name))
        summary, text = catalogue.reports("summary"), catalogue.reports("text")
        return _json(
            {
                "findings": [
                    {
                        "key": finding.key,
                        "code": text.one_line(finding.code, 40),
                        "message": text.one_line(finding.message, 500),
                        "severity": summary.severity(finding).value,
                        "cost": text.micro(summary.cost(finding)),
                        "file": finding.site.file if finding.site else "",
                        "line": finding.site.line if finding.site else 0,
                        "function": finding.site.function if finding.site else "",
                        "perStep": finding.per_step,
                        "place": text.one_line(str(finding.site), 300) if finding.site else "",
                        "slices": pattern(finding.code),
                        "outermost": finding.code in OUTERMOST,
                    }
                    for finding in report.findings
                ]
            }
        )

    # -- files -------------------------------------------------------------------------------------

    def _report(self, name: str) -> Reply:
        path = self._run(name).page()
        if path is None:
            raise NotThere("this run has no report.html: audit analyze writes it again")
        # A report may come from a stranger: it runs in a sandbox without an origin, and only
        # scripts that its own policy names by their hash run at all. (The frame's sandbox attribute
        # says the same; this also holds where it is opened alone.)
        hashes = _HASHES.search(_beginning(path))
        scripts = hashes[1].strip() if hashes else "'none'"
        policy = (
            f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; frame-ancestors "
            "'self'; sandbox allow-scripts allow-popups"
        )
        return Reply(_blocks(path), "text/html; charset=utf-8", policy)

    def _trace(self, name: str) -> Reply:
        path = self._run(name).trace()
        if path is None:
            raise NotThere("this run has no trace beside its report")
        return Reply(_blocks(path), "application/json", encoding="gzip" if _is_gzip(path) else "")

    def _viewer(self, _: str) -> Reply:
        found = viewer()
        if found is None:
            raise NotThere(MISSING)
        return Reply([found.page], "text/html; charset=utf-8", found.policy)


@dataclass(frozen=True)
class _Asset:
    """One of our own files."""

    path: Path

    def __call__(self, _: str) -> Reply:
        kind = _TYPES[self.path.suffix]
        return Reply(
            [self.path.read_bytes()], f"{kind}; charset=utf-8", _OURS if kind == "text/html" else ""
        )


def _described(run: RunFolder) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": run.name,
        "page": run.page() is not None,
        "trace": run.trace() is not None,
    }
    try:
        report = _loaded(run)
    except NotThere as problem:
        return told | {"problem": str(problem)}
    summary, text, headline = (catalogue.reports(name) for name in ("summary", "text", "headline"))
    ended = "" if report.run.outcome == "completed" else f"{summary.outcome(report)}. "
    return told | {
        "target": text.one_line(report.run.target, 200),
        "recorded": amounts.moment(text.one_line(report.run.recorded_at, 60)),
        "said": text.one_line(f"{ended}{headline.headline(report)[0]}", 300),
        "outcome": summary.outcome(report),
        "findings": len(report.findings),
    }


def _loaded(run: RunFolder) -> Report:
    path = run.report()
    if path is None:
        raise NotThere("report.json is missing")
    try:
        loaded: Report = catalogue.reports("as_json").read(path)
    except (OSError, ValueError) as error:
        raise NotThere(f"report.json cannot be read: {error}") from None
    return loaded


def _json(value: Any) -> Reply:
    return Reply([json.dumps(value).encode("ascii")], "application/json")


def _headers(reply: Reply) -> Headers:
    headers = [
        ("Content-Type", reply.kind),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
    ]
    if reply.policy:
        headers.append(("Content-Security-Policy", reply.policy))
    if reply.encoding:
        headers.append(("Content-Encoding", reply.encoding))
    return headers


def refused(status: str, why: str, start_response: StartResponse) -> list[bytes]:
    """A refusal, with its reason as plain text."""
    start_response(status, _headers(Reply([], "text/plain; charset=utf-8")))
    return [f"{why}\n".encode("utf-8", "replace")]


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return html.unescape(file.read(_HEAD).decode("utf-8", "replace"))


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


# -- slices ----------------------------------------------------------------------------------------
# Which slices of a trace belong to a finding: by the kind of work that its rule is about.


# Regular expressions that Python and JavaScript read alike, over names of slices as torch.profiler
# writes them.
_COPY_TO_DEVICE = r"^Memcpy HtoD"
_PRODUCTS = r"^aten::(mm|addmm|bmm|baddbmm|convolution|cudnn_convolution)$"
_COLLECTIVES = r"^(nccl|gloo|c10d)"
_STEP = r"^ProfilerStep#"

PATTERNS = {
    "SYNC001": r"^aten::item$",
    "SYNC002": r"^aten::is_nonzero$",
    "SYNC003": r"^Memcpy DtoH",
    "SYNC004": r"^(cuda|hip)(Device|Stream|Event)Synchronize$",
    "SYNC005": r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|bincount)$",
    "SYNC006": _COPY_TO_DEVICE,
    "SYNC007": _COPY_TO_DEVICE,
    "SYNC010": _COPY_TO_DEVICE,
    "SYNC011": _COPY_TO_DEVICE,
    "SYNC012": r"^(cuda|hip)(Malloc|Free)",
    "DATA003": _COPY_TO_DEVICE,
    "DATA004": _COPY_TO_DEVICE,
    "DATA007": r"^enumerate\(DataLoader\)",
    "DATA008": _COPY_TO_DEVICE,
    "GRAPH002": r"^autograd::engine::evaluate_function",
    "NUM009": r"^autograd::engine::evaluate_function",
    "AMP001": _PRODUCTS,
    "AMP002": _PRODUCTS,
    "AMP003": _PRODUCTS,
    "AMP007": r"^aten::_to_copy$",
    "CFG003": r"(nchwToNhwc|nhwcToNchw)",
    "OPT001": r"^Optimizer\.step",
    "OPT002": r"^Optimizer\.zero_grad",
    "OPT003": r"^Optimizer\.step",
    "OPT004": r"^aten::(linalg_vector_norm|_foreach_norm|norm)$",
    "KERN005": r"^aten::_?softmax$",
    "KERN006": r"^aten::(select|index)$",
    "DIST002": _COLLECTIVES,
    "DIST003": _COLLECTIVES,
    "DIST004": _COLLECTIVES,
    "TIME003": _STEP,
}
"""By rule. One that is not here has no kind of slice of its own (memory, graphs, idle time)."""

OUTERMOST = frozenset({"SYNC001", "SYNC002", "SYNC005", "OPT004"})
"""Rules about calls on the user's own line: their slices lie in no operator or backward."""


def pattern(code: str) -> str:
    """The pattern of a rule's slices; empty if it has none."""
    return PATTERNS.get(code, "")


# -- catapult --------------------------------------------------------------------------------------
# The trace viewer (Catapult) as a page of ours, from the files of the installed torch-tb-profiler
# package.


PACKAGE = "torch_tb_profiler"
FILE = Path("static") / "trace_viewer_full.html"

MISSING = (
    "the trace viewer is part of the package torch-tb-profiler, and that is not installed: pip "
    "install torch-tb-profiler"
)

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_BEFORE = '<link rel="stylesheet" href="viewer.css"><script src="custom_elements.js"></script>'
_AFTER = '<script src="viewer.js"></script>'


@dataclass(frozen=True)
class Viewer:
    """The page, and its content security policy: own scripts by hash, nothing from elsewhere."""

    page: bytes
    policy: str


def viewer() -> Viewer | None:
    """The viewer's page, with our scripts; None if it is missing."""
    path = viewer_file()
    return _viewer_of(path) if path is not None else None


def viewer_file() -> Path | None:
    """Catapult's page in the installed package; None if either is missing."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / FILE
    return path if path.is_file() else None


@functools.cache
def _viewer_of(path: Path) -> Viewer:
    page = with_scripts(path, _BEFORE, _AFTER)
    return Viewer(
        page.encode(),
        f"default-src 'none'; script-src 'self' {hashes(page)}; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; "
        "img-src 'self' data:; frame-ancestors 'self'; base-uri 'self'; form-action 'none'",
    )


def with_scripts(path: Path, before: str, after: str) -> str:
    """Catapult's page with HTML of ours before and after its own scripts, which stay byte for byte.
    As a page of its own the file needs no HTML imports, which browsers dropped.
    """
    text = path.read_text("utf-8")
    begin, end = text.index("<template"), text.rindex("</body>")
    return text[:begin] + before + text[begin:end] + after + text[end:]


def hashes(page: str) -> str:
    """The sources of a policy under which the inline scripts of a page may run."""
    made = (hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(page))
    return " ".join(f"'sha256-{base64.b64encode(each).decode('ascii')}'" for each in made)
