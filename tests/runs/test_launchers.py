"""What a launcher's variables say."""

import socket

import pytest

from auditor.runs.launchers import AGENT_STORE, another_store, launched

TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "node7",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (TORCHRUN, (1, 4)),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_JOB_ID": "5"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
        ({**TORCHRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (1, 4)),
    ],
    ids=["torchrun", "srun", "Open MPI", "MPICH", "torchrun in a SLURM job"],
)
def test_a_rank_is_told_by_its_launcher(said, expected):
    own = launched(said)
    assert own is not None
    assert (own.rank, own.world_size) == expected


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "4", "WORLD_SIZE": "4"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "one", "WORLD_SIZE": "two"},
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script, which srun has not started
        {"RANK": "0", "WORLD_SIZE": "1", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"},
    ],
)
def test_one_process_is_no_rank(said):
    assert launched(said) is None


def job(**others):
    own = launched({**TORCHRUN, **others})
    assert own is not None
    return own.job


def test_ranks_of_one_job_share_a_word_that_no_other_job_has():
    assert job() == job(RANK="2", LOCAL_RANK="2")
    words = {
        job(),
        job(MASTER_PORT="29501"),
        job(MASTER_ADDR="node8"),
        job(TORCHELASTIC_RUN_ID="mine"),
        job(TORCHELASTIC_RESTART_COUNT="1"),
        job(SLURM_JOB_ID="6"),
    }
    assert len(words) == 6


def test_an_address_that_every_machine_has_is_told_apart_by_the_machine():
    here = job(MASTER_ADDR="127.0.0.1")
    assert here == job(MASTER_ADDR="localhost") == job(MASTER_ADDR=socket.gethostname())
    assert here != job()


def test_processes_meet_a_second_time_at_a_store_of_their_own():
    assert another_store(TORCHRUN) == {}
    alone = {**TORCHRUN, AGENT_STORE: "True", "LOCAL_WORLD_SIZE": "4"}
    found = another_store(alone)
    assert (found[AGENT_STORE], found["MASTER_ADDR"]) == ("False", "127.0.0.1")
    assert int(found["MASTER_PORT"]) not in (0, 29500)
    spread = another_store({**alone, "LOCAL_WORLD_SIZE": "2"})
    assert spread["MASTER_ADDR"] == socket.gethostname()
