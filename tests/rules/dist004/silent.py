from tests.timeline.jobs import job
from tests.timeline.kineto import text, training


def equal_ranks_on_other_clocks__ranks():
    return job(4, lambda rank, step: 0.0, clock=9_999_999.0)


def another_rank_each_step__ranks():
    return job(8, lambda rank, step: 200.0 if rank == step % 8 else 0.0, steps=8)


def a_little_late__ranks():
    return job(4, lambda rank, step: 30.0 if rank == 2 else 0.0)


def one_step_may_be_an_accident__ranks():
    return job(4, lambda rank, step: 200.0 if rank == 2 else 0.0, steps=1)


def one_trace_alone__trace():
    return text(training(3))
