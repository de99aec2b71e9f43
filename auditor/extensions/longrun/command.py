"""``audit attach``: ask a watched training process for a look."""

from __future__ import annotations

import time

from auditor import amounts
from auditor.cli import console
from auditor.errors import AuditProblem
from auditor.extensions.longrun.requests import Request

POLL_S = 0.2


def attach(*, pid: int, timeout: float) -> int:
    """Ask, and wait for the report; the exit code. Raises :class:`AuditProblem`."""
    request = Request(pid)
    request.send()
    console.say(f"asked process {pid}; it looks at its next steps", err=True)
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        said = request.answer()
        if said is not None:
            return _told(said)
        if not request.alive:
            raise AuditProblem(f"process {pid} ended before its look was done")
        time.sleep(POLL_S)
    where = f"{request.facts.get('out')}/looks"
    if request.pending:
        raise AuditProblem(
            f"process {pid} ended no step in {timeout:g} s: it looks when it does",
            f"its report will be in {where}",
        )
    raise AuditProblem(
        f"the look takes longer than {timeout:g} s", f"its report will be in {where}"
    )


def _told(said: dict[str, object]) -> int:
    if "report" not in said:
        raise AuditProblem(f"the process could not look: {said.get('problem', 'it says not why')}")
    found = said.get("findings")
    if isinstance(found, int):
        console.say(amounts.count(found, "finding"), err=True)
    console.say(str(said["report"]))
    return 0
