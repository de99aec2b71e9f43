"""Ranks of a world that is not there, each rehearsed alone on the null device (docs/ranks.md)."""

from collections.abc import Callable
from dataclasses import replace

from auditor import null_device
from auditor.errors import AuditProblem
from auditor.recordings.folder import Recording
from auditor.runs.child_process import record_once
from auditor.runs.launchers import told_by_torchrun
from auditor.runs.null_run import DEFAULT_GPU
from auditor.runs.plan import RANK_FOLDER, REHEARSED_STEPS, Audit, Passes, Plan
from auditor.runs.progress import Progress, stage
from auditor.runs.project_copy import sheltered
from auditor.runs.ranks import prefixed

NODE = 8
"""Ranks of one machine: GPUs that a node has in most clusters."""

PORT = 29500
"""torchrun's own port; no process listens on it."""

MOST = 16
"""Ranks that are rehearsed at most: each takes a process and its time."""


def chosen(world: int, asked: str) -> tuple[int, ...]:
    """The ranks that ``--ranks`` names, in order; the first and the last where it is empty.

    Raises :class:`AuditProblem` if it names others than the world has.
    """
    if not asked:
        return (0, world - 1)
    try:
        ranks = sorted({int(word) for word in asked.split(",")})
    except ValueError:
        raise AuditProblem(f"--ranks {asked}: write numbers, as in --ranks 0,{world - 1}") from None
    if ranks[0] < 0 or ranks[-1] >= world:
        raise AuditProblem(f"--ranks {asked}: the ranks of --world {world} are 0 to {world - 1}")
    if len(ranks) > MOST:
        raise AuditProblem(
            f"--ranks names {len(ranks)} ranks; at most {MOST} are rehearsed",
            "choose those that differ: the first, the last, one of each pipeline stage",
        )
    return tuple(ranks)


def possible() -> None:
    """Raise :class:`AuditProblem`, with the one command that helps, if there is no null device."""
    problem = null_device.lacking()
    if problem is not None:
        raise AuditProblem(
            f"--world rehearses ranks on a null device, and {problem.message}", problem.hint
        )


def planned(audit: Audit) -> Audit:
    """The plan as it is played: the steps of a rehearsal, without times."""
    run = audit.run
    return Audit(
        replace(
            run,
            device="null",
            steps=min(run.steps, REHEARSED_STEPS),
            warmup=0,
            purpose=Passes(trace=0),
        )
    )


def of_rank(plan: Plan, rank: int, variables: dict[str, str]) -> Plan:
    """The plan of one rank, with the rank's variables as ``torchrun`` sets them."""
    told = told_by_torchrun(rank, plan.world_size, min(NODE, plan.world_size), PORT)
    return replace(
        plan,
        folder=f"{plan.folder}/{RANK_FOLDER}{rank}",
        rank=rank,
        variables={**variables, **told, "TORCHELASTIC_RUN_ID": "none"},
    )


class PlayedRanks:
    """One process after the other: none of them waits for another."""

    shelter = staticmethod(sheltered)

    def once(
        self, plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
    ) -> list[Recording]:
        """Each of ``plan.played``, in a copy of the folder: its zeros must not replace results."""
        devices = min(NODE, plan.world_size)
        variables = null_device.environment(plan.gpu or DEFAULT_GPU, devices)
        made = []
        with sheltered(plan) as apart:
            for rank in plan.played:
                stage(progress, f"rank {rank} of {plan.world_size}")
                own = of_rank(apart, rank, variables)
                made.append(record_once(own, deadline, progress, prefixed(echo, rank)))
                if made[-1].manifest["outcome"] == "interrupted":
                    break
        return made
