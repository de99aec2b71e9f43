"""Traces of a job's ranks: a step computes, then reduces, and ends when the last has come."""

from tests.timeline.kineto import HEAD, kernel, note, text

STEP, COMPUTE, SENDING = 1000.0, 500.0, 40.0


def job(ranks, late, steps=6, clock=77_000.0):
    """One text a rank, its own clock; it computes ``late(rank, step)`` us longer."""
    return [_rank(rank, ranks, late, steps, 5_000_000.0 + clock * rank) for rank in range(ranks)]


def _rank(rank, ranks, late, steps, clock):
    events = []
    for step in range(steps):
        begin = clock + STEP * step
        done = begin + 10 + COMPUTE + late(rank, step)
        end = begin + 10 + COMPUTE + max(late(one, step) for one in range(ranks)) + SENDING
        events += [
            note(f"ProfilerStep#{step}", begin, STEP - 10),
            kernel(
                "ampere_bf16_s16816gemm_bf16_128x64", begin + 10, done - begin - 10, 100 * step + 1
            ),
            kernel(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                done,
                end - done,
                100 * step + 2,
                stream=9,
            ),
        ]
    return text(
        events,
        HEAD.replace('"rank": 3', f'"rank": {rank}').replace(
            '"world_size": 8', f'"world_size": {ranks}'
        ),
    )
