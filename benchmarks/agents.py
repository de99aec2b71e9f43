"""A client of ``audit mcp`` that knows nothing but what the tools answer: it audits, applies the safe
patches one family at a time, and audits again, until no safe patch is left. Prints a row for each
program.

    OMP_NUM_THREADS=1 python -m benchmarks.agents [name ...]

Names are folders of examples/ and of benchmarks/real_defects/programs; without names all the broken
examples. Programs are copied before.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from benchmarks.real_defects.pairs import PROGRAMS, target

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
STEPS, ROUNDS = 20, 3

NEXT = re.compile(r"^next: audit fix \S+ --select (\w+) \| git apply$", re.MULTILINE)
HEAD = """\
| program | errors, warnings before | after | notes before | after | files patched | calls | s |
|---|---|---|---|---|---|---|---|"""


class Agent:
    """The client, and how often it called."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.calls = 0

    async def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """A tool's answer, waited for as long as it takes. Raises ``RuntimeError`` for a refusal."""
        self.calls += 1
        result = await self.client.call_tool(tool, given)
        if result.is_error:
            raise RuntimeError(f"{tool}: {result.content[0].text}")
        answer: dict[str, Any] = result.structured_content
        if answer["state"] == "running":
            return await self.call("status", run=answer["run"], wait_s=300)
        return answer


def counted(project: Path, answer: dict[str, Any]) -> Counter[str]:
    report = json.loads((project / answer["folder"] / "report.json").read_text("utf-8"))
    return Counter("note" if f["severity"] == "note" else "loud" for f in report["findings"])


async def repaired(project: Path, target: str) -> str:
    """The cells of a row."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "auditor", "mcp"],
        cwd=project,
        env={"OMP_NUM_THREADS": "1"},
    )
    began = time.monotonic()
    async with Client(command, read_timeout_seconds=600) as client:
        agent = Agent(client)
        try:
            cells = await _looped(agent, project, target)
        except RuntimeError as refused:
            cells = (str(refused).replace("|", "/").replace("\n", " "), *[""] * 4)
    return " | ".join(map(str, (*cells, agent.calls, round(time.monotonic() - began))))


async def _looped(agent: Agent, project: Path, target: str) -> tuple[object, ...]:
    answer, patched = await agent.call("audit", target=target, steps=STEPS), set()
    before = after = counted(project, answer)
    for _ in range(ROUNDS):
        families = NEXT.findall(answer["text"])
        if not families:
            break
        for family in families:
            told = await agent.call("fix", folder=answer["folder"], codes=family)
            patched |= set(re.findall(r"^patched (\S+) ", told["text"], re.MULTILINE))
        answer = await agent.call("audit", target=target, steps=STEPS)
        after = counted(project, answer)
    return before["loud"], after["loud"], before["note"], after["note"], len(patched)


def program(name: str) -> tuple[Path, str]:
    """Folder and target."""
    if (EXAMPLES / name).is_dir():
        folder = EXAMPLES / name / "broken"
        return folder, tomllib.loads((folder / "expected.toml").read_text("utf-8"))["target"]
    return PROGRAMS / name, target(PROGRAMS / name)


def main(names: list[str]) -> None:
    print(HEAD)
    ignored = shutil.ignore_patterns("audits", "__pycache__", "truth.json", "repaired.diff")
    for name in names or sorted(path.parent.name for path in EXAMPLES.glob("*/broken")):
        folder, audited = program(name)
        with tempfile.TemporaryDirectory() as home:
            project = Path(home) / "project"
            shutil.copytree(folder, project, ignore=ignored)
            cells = anyio.run(repaired, project, audited)
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
