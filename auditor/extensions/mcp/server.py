"""The server and its tools. Each runs a command of ``audit`` in a child process; what takes longer
than the client may wait goes on, and ``status`` waits again.
"""

import inspect
import os
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from auditor.cli import agents, launch, open_input
from auditor.cli.usage import EXIT_FOUND, EXIT_IMPOSSIBLE, EXIT_INTERRUPTED, EXIT_TARGET
from auditor.errors import AuditProblem
from auditor.extensions.mcp.children import Child, Children
from auditor.judging import catalogue

LIMIT = 5600
"""Characters of ``text`` at most: with the other fields an answer stays below about 1,500 tokens."""

_POLL_S = 0.1
_LINE = 200

MEANINGS = {
    0: "done",
    EXIT_FOUND: "a finding or a regression reached its limit",
    EXIT_IMPOSSIBLE: "the audit could not be done, or the target trained nothing",
    EXIT_TARGET: "the target failed: this is on what was recorded before",
    EXIT_INTERRUPTED: "interrupted: this is on what was recorded before",
}

Folder = Annotated[str, Field(description="Folder of an audit, as in audits/trainer-step-...")]
Codes = Annotated[
    str | list[str],
    Field(description="Codes or families, as in SYNC,MEM005, or a list of them; empty: all."),
]
Arguments = Annotated[
    list[str] | None, Field(description="The target's own arguments, for a script.")
]
Target = Annotated[
    str,
    Field(
        description="package.module:callable, path/file.py:callable (one step) or path/script.py"
    ),
]
Wait = Annotated[
    float,
    Field(
        description="Seconds to wait; then the run goes on: see status.",
        json_schema_extra={"minimum": 0, "maximum": 600},
    ),
]
Steps = Annotated[
    int,
    Field(
        description="Steps of each pass.",
        # For the client; the tools refuse others in a sentence, where pydantic has a page.
        json_schema_extra={"minimum": 1, "maximum": 100_000},
    ),
]


@dataclass
class Reply:
    """The answer of every tool. ``run`` is what ``status`` is asked with, ``folder`` the audit's;
    ``exit_code`` is None while it runs.
    """

    state: Literal["done", "running"]
    text: str
    meaning: str = ""
    exit_code: int | None = None
    run: str = ""
    folder: str = ""


class Tools:
    """The tools, for one client in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.children = Children(root)

    async def audit(
        self,
        ctx: Context,
        target: Target,
        *,
        steps: Steps = 50,
        select: Codes = "",
        args: Arguments = None,
        wait_s: Wait = 45,
    ) -> Reply:
        """Run a training step and say what is wrong with it: code, line, price, patch. Takes a
        minute or more; answers "running" with a run id after wait_s seconds, then call status. It
        writes a folder below audits/ and changes no source.
        """
        _within("steps", steps, 1, 100_000)
        words = ["run", self._target(target), "--steps", str(steps), *_select(select)]
        return await self._alone(ctx, [*words, *_after(args)], wait_s)

    async def findings(self, folder: Folder) -> Reply:
        """The findings of an audit that was made before, costliest first, and the next commands."""
        place = self._inside(folder)
        return Reply("done", await self._report(place), MEANINGS[0], 0, folder=place)

    async def explain(
        self, ctx: Context, code: Annotated[str, Field(description="A code, as in SYNC001.")]
    ) -> Reply:
        """The manual page of a rule: what it finds, when it does not apply, its remedy."""
        if not code:
            raise ToolError("say which rule, as in SYNC001")
        return await self._run(ctx, ["explain", _allowed(own_codes, code)], 60)

    async def diff(
        self, ctx: Context, folder: Folder, codes: Codes = "", *, unsafe: bool = False
    ) -> Reply:
        """The patches of an audit as a unified diff; nothing is changed. With unsafe also those that
        need judgement.
        """
        words = ["fix", self._inside(folder), *_select(codes), *(["--unsafe"] if unsafe else [])]
        return await self._run(ctx, words, 60)

    async def fix(self, ctx: Context, folder: Folder, codes: Codes = "") -> Reply:
        """WRITES to source files: applies the safe patches of an audit, best one family at a time.
        Refuses files that changed since. Then run the tests, and audit again.
        """
        words = ["fix", self._inside(folder), "--apply", *_select(codes)]
        return await self._alone(ctx, words, 60)

    async def verify(
        self,
        ctx: Context,
        folder: Folder,
        codes: Codes = "",
        budget_s: Annotated[float, Field(json_schema_extra={"minimum": 0, "maximum": 3600})] = 120,
        wait_s: Wait = 45,
    ) -> Reply:
        """Run the target again with and without each patch, in copies, before any is applied: what
        does it save, and does the result stay the same? No source is changed.
        """
        _within("budget_s", budget_s, 0, 3600)
        words = ["verify", self._inside(folder), *_select(codes), "--budget", str(budget_s)]
        return await self._alone(ctx, words, wait_s)

    async def compare(self, ctx: Context, before: Folder, after: Folder) -> Reply:
        """Compare two audits of the same target: step time with an interval, memory, findings."""
        return await self._run(ctx, ["compare", self._inside(before), self._inside(after)], 120)

    async def plan(
        self,
        ctx: Context,
        target: Target,
        gpu: Annotated[str, Field(description="Name of a GPU, as in A100.")] = "H100",
        args: Arguments = None,
        wait_s: Wait = 45,
    ) -> Reply:
        """Which batch size and which setting fit on a GPU, without one. Takes minutes."""
        if not _WORD.fullmatch(gpu):
            raise ToolError(_plain(f"{gpu[:80]!r} is no name of a GPU", 600))
        words = ["plan", self._target(target), "--gpu", gpu, *_after(args)]
        return await self._alone(ctx, words, wait_s)

    async def analyze(
        self,
        ctx: Context,
        path: Annotated[str, Field(description="A recording, a profiler trace, or a snapshot.")],
        wait_s: Wait = 45,
    ) -> Reply:
        """Judge a recording, a trace of torch.profiler or a CUDA memory snapshot; runs no program."""
        return await self._run(ctx, ["analyze", self._inside(path)], wait_s)

    async def status(
        self,
        ctx: Context,
        run: Annotated[str, Field(description="A run id; empty: list the runs.")] = "",
        wait_s: Wait = 45,
        *,
        stop: Annotated[bool, Field(description="Ask the run to end and report.")] = False,
    ) -> Reply:
        """Wait for a run that is "running", and give its result."""
        if not run:
            lines = [_listed(child) for child in self.children.runs.values()]
            return Reply("done", bounded("\n".join(lines) or "no run yet"), MEANINGS[0], 0)
        child = self.children.runs.get(run)
        if child is None:
            raise ToolError(f"there is no run {run[:40]!r}; status without a run lists them")
        _within("wait_s", wait_s, 0, 600)
        if stop:
            child.ask()
        return await self._awaited(ctx, child, wait_s)

    # -- how a command is run ----------------------------------------------------------------------

    async def _alone(self, ctx: Context, words: Sequence[str], wait_s: float) -> Reply:
        """Refused beside a run that times the program, or reads its files: both would go wrong."""
        for other in self.children.running():
            raise ToolError(
                f"run {other.run} ({_command(other)}) is in progress and would be disturbed: wait for "
                "it with status"
            )
        return await self._run(ctx, words, wait_s)

    async def _run(self, ctx: Context, words: Sequence[str], wait_s: float) -> Reply:
        _within("wait_s", wait_s, 0, 600)
        if any("\0" in word for word in words):
            raise ToolError("an argument holds a NUL")
        return await self._awaited(ctx, self.children.start(words), wait_s)

    async def _awaited(self, ctx: Context, child: Child, wait_s: float) -> Reply:
        until, told = time.monotonic() + wait_s, 0
        while True:
            code = child.ended()
            for number, line in list(child.lines):
                if number > told:
                    await ctx.report_progress(number, message=_plain(line))
                    told = number
            if code is not None or time.monotonic() >= until:
                break
            await anyio.sleep(_POLL_S)
        if code is not None:
            return await self._result(child, code)
        said = "\n".join(_plain(line) for _, line in list(child.lines)[-5:])
        words = (
            f"{_command(child)} runs for {child.seconds:.0f} s: status with run {child.run} waits"
        )
        return Reply("running", bounded(f"{words}\n{said}"), "not done yet", run=child.run)

    async def _result(self, child: Child, code: int) -> Reply:
        """Raises ``ToolError`` if a command could not be done and left no report."""
        said = "\n".join(_plain(line) for _, line in list(child.lines)[-8:])
        folder = self._folder(child)
        if code not in MEANINGS or (code == EXIT_IMPOSSIBLE and not folder):
            raise ToolError(bounded(said or f"{_command(child)} ended with {code}"))
        text = await self._report(folder) if folder else child.out or said
        return Reply("done", bounded(text), MEANINGS[code], code, run=child.run, folder=folder)

    def _folder(self, child: Child) -> str:
        """Where a command left a report: in the last line that it printed, or where it was."""
        last = child.out.rstrip().rpartition("\n")[2]
        if child.words[0] == "verify" and child.out:
            return child.words[1]
        if child.words[0] not in ("run", "analyze") or not last.endswith("report.html"):
            return ""
        try:
            return inside(self.root, str(Path(last).parent))
        except AuditProblem:  # the user's settings lead elsewhere: the table is shown instead
            return ""

    async def _report(self, folder: str) -> str:
        def rendered() -> str:
            report = open_input.report_of(self.root / folder)
            return str(catalogue.reports("agent").Agent(folder, LIMIT).render(report))

        try:
            return bounded(await anyio.to_thread.run_sync(rendered))
        except AuditProblem as problem:
            raise _refused(problem) from None

    def _inside(self, path: str) -> str:
        return _allowed(lambda given: inside(self.root, given), path)

    def _target(self, given: str) -> str:
        return _allowed(lambda target: own_target(self.root, target), given)


def _within(what: str, given: float, low: int, high: int) -> None:
    if not low <= given <= high:
        raise ToolError(f"{what} is {given:g}: give {low:,} to {high:,}")


def _allowed(check: Callable[[str], str], given: str) -> str:
    try:
        return check(given)
    except AuditProblem as problem:
        raise _refused(problem) from None


def _refused(problem: AuditProblem) -> ToolError:
    return ToolError(_plain(". ".join(filter(None, (problem.message, problem.hint))), 600))


def _select(codes: str | list[str]) -> list[str]:
    chosen = _allowed(own_codes, codes if isinstance(codes, str) else ",".join(codes))
    return ["--select", chosen] if chosen else []


def _after(args: list[str] | None) -> list[str]:
    return ["--", *args] if args else []


def _plain(words: str, limit: int = _LINE) -> str:
    return str(catalogue.reports("text").one_line(words, limit))


def _command(child: Child) -> str:
    return _plain(f"audit {shlex.join(child.words)}")


def _listed(child: Child) -> str:
    code = child.ended()
    how = "runs" if code is None else f"ended with {code}"
    return f"run {child.run}: {_command(child)} {how}"


def bounded(words: str) -> str:
    """At most :data:`LIMIT` characters, cut after a line, and how many lines were left out."""
    shown = str(catalogue.reports("text").visible(words))
    if len(shown) <= LIMIT:
        return shown
    kept = shown[: LIMIT - 60].rpartition("\n")[0] or shown[: LIMIT - 60]
    rest = shown[len(kept) :].strip("\n").count("\n") + 1
    return f"{kept}\n[{rest:,} more lines: ask for fewer codes]"


_READS = ToolAnnotations(read_only_hint=True)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True)


def server(tools: Tools) -> MCPServer[Any]:
    """The server with its tools; agents read the text of ``audit agents`` as its instructions."""
    try:
        number = version("torch-step-audit")
    except PackageNotFoundError:
        number = ""
    made: MCPServer[Any] = MCPServer(
        "torch-step-audit", instructions=agents.section(), version=number, log_level="WARNING"
    )
    for kind, functions in (
        (_RUNS, (tools.audit, tools.verify, tools.plan, tools.analyze, tools.status)),
        (_READS, (tools.findings, tools.explain, tools.diff, tools.compare)),
        (_WRITES, (tools.fix,)),
    ):
        for function in functions:
            made.add_tool(
                function,
                description=inspect.getdoc(function),
                annotations=kind,
                structured_output=True,
            )
    return made


def serving(root: Path) -> None:
    """Serve on stdin and stdout until the client closes them; its children end with it."""
    tools = Tools(root)
    try:
        server(tools).run("stdio")
    except KeyboardInterrupt:
        tools.children.end()
        # The SDK's thread that reads stdin cannot be interrupted: a usual exit would wait for it.
        os._exit(EXIT_INTERRUPTED)
    finally:
        tools.children.end()


# -- what a client may ask for ---------------------------------------------------------------------
# Paths inside the working directory, and nothing that the command line would take for an option.

_CODES = re.compile(r"[A-Za-z]{2,12}[0-9]{0,3}(,[A-Za-z]{2,12}[0-9]{0,3})*")
_WORD = re.compile(r"[\w.+ ][\w.+ -]{0,80}")


def inside(root: Path, given: str) -> str:
    """A path that lies in ``root`` with links followed, as the command line takes it: relative to
    ``root``. Raises :class:`AuditProblem` for others, and if there is nothing.
    """
    home = root.resolve()
    try:
        place = (home / given).resolve()
        there = place.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, a circle of links
        raise AuditProblem(f"{given[:80]!r} is no path") from None
    if not place.is_relative_to(home):
        raise AuditProblem(f"{given[:200]} lies outside of the working directory {home}")
    if not given or not there:
        raise AuditProblem(f"{given[:200]!r} does not exist in {home}")
    found = str(place.relative_to(home))
    return f"./{found}" if found.startswith("-") else found


def own_target(root: Path, given: str) -> str:
    """A target: no option, no launcher, and its file inside ``root``. Raises :class:`AuditProblem`."""
    if not given.strip() or given.startswith("-"):
        raise AuditProblem(
            f"{given[:200]!r} is no target",
            "give package.module:callable, file.py:callable or file.py",
        )
    if launch.is_launcher(given):
        raise AuditProblem(
            f"{given[:80]} starts another program, which may lie anywhere",
            f"give the program itself, or run audit run -- {given[:80]} ... in a shell",
        )
    file = given.partition(":")[0]
    if "/" in file or "\\" in file or file.endswith(".py"):
        inside(root, file)
    return given


def own_codes(given: str) -> str:
    """Codes or families with commas; empty for all. Raises :class:`AuditProblem`."""
    plain = given.replace(" ", "")
    if plain and not _CODES.fullmatch(plain):
        raise AuditProblem(f"{given[:80]!r} are no codes", "write them as SYNC,MEM005")
    return plain.upper()
