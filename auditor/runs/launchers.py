"""Whether a launcher (torchrun, srun, mpirun) started this process as one of several ranks."""

import hashlib
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
"""Rank and number of ranks: torchrun's names (accelerate and deepspeed set them too), SLURM's
(srun(1), OUTPUT ENVIRONMENT VARIABLES; a batch script has SLURM_NTASKS of the whole allocation, and
is one process), Open MPI's and MPICH's. The first pair that is set decides.
"""

JOB = (
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "OMPI_MCA_ess_base_jobid",
    "PMI_JOBID",
    "MASTER_PORT",
)
"""What all ranks of one job share, and two jobs beside each other do not."""

LOCAL = ("", "localhost", "127.0.0.1", "::1")

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""torchrun's agent keeps the store at which its processes meet (torch/distributed/rendezvous.py),
and the store keeps what earlier processes left there: they cannot meet in it a second time.
"""


def told_by_torchrun(
    rank: int, world_size: int, local_world_size: int, port: int
) -> dict[str, str]:
    """What ``torchrun`` tells a process of a job whose machines run as many processes each (docs:
    Environment Variables of torch.distributed.run), the first of which listens on ``port``.
    """
    machine, local = divmod(rank, local_world_size)
    told = {
        "RANK": rank,
        "LOCAL_RANK": local,
        "GROUP_RANK": machine,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": local_world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return {name: str(value) for name, value in told.items()}


@dataclass(frozen=True)
class Launched:
    """Number ``rank`` of ``world_size`` processes; ``job`` is the same word in all of them."""

    rank: int
    world_size: int
    job: str


def launched(environment: Mapping[str, str]) -> Launched | None:
    """What a launcher told this process; None if it told of no other rank."""
    for rank, size in VARIABLES:
        found = environment.get(rank, ""), environment.get(size, "")
        if not all(word.isascii() and word.isdigit() for word in found):
            continue
        number, ranks = map(int, found)
        return Launched(number, ranks, _job(environment)) if number < ranks > 1 else None
    return None


def another_store(environment: Mapping[str, str]) -> dict[str, str]:
    """As rank 0: what the ranks' environment must have to meet once more at its own store."""
    if environment.get(AGENT_STORE) != "True":
        return {}
    together = environment.get("LOCAL_WORLD_SIZE") == environment.get("WORLD_SIZE")
    return {
        AGENT_STORE: "False",
        "MASTER_ADDR": "127.0.0.1" if together else socket.gethostname(),
        "MASTER_PORT": str(free_port()),
    }


def free_port() -> int:
    """A port of this machine that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _job(environment: Mapping[str, str]) -> str:
    address = environment.get("MASTER_ADDR", "")
    if address in LOCAL and "SLURM_JOB_ID" not in environment:
        address = socket.gethostname()
    words = [address, *(environment.get(name, "") for name in JOB)]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
