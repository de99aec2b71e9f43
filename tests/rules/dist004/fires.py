from tests.timeline.jobs import job


def one_rank_computes_longer__ranks():
    return job(4, lambda rank, step: 200.0 if rank == 2 else 5.0 * rank)


def one_rank_is_late_on_most_steps__ranks():
    return job(4, lambda rank, step: 300.0 if rank == 0 and step % 3 else 5.0 * rank)
