"""Scalars for TensorBoard: its reader reads them, units and steps are right, gaps are left out."""

import math
from dataclasses import replace

from auditor.cli.tensorboard_files import write_scalars
from auditor.model.charts import Series
from tests.reports import golden_attack
from tests.reports import golden_report as golden


def _read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {
        tag: [(event.step, event.value) for event in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }


def test_tensorboard_reads_step_times_memory_and_syncs(tmp_path):
    write_scalars(golden.rich_report(), [(0, 2), (0, 1), (2, 4)], tmp_path)
    read = _read(tmp_path)
    assert list(read) == [
        "step time/quiet pass (ms)",
        "step time/loud pass (ms)",
        "memory/allocated (MiB)",
        "memory/reserved (MiB)",
        "host syncs/reads of tensors each step, diagnostic pass",
    ]
    first, *rest = read["step time/quiet pass (ms)"]
    assert (first[0], round(first[1], 6), len(rest)) == (5, 38.0, 49)
    assert read["memory/allocated (MiB)"][0] == (5, 400.0)
    assert read["host syncs/reads of tensors each step, diagnostic pass"] == [
        (0, 3.0),
        (1, 0.0),
        (2, 4.0),
    ]


def test_syncs_stand_at_the_steps_of_the_run(tmp_path):
    write_scalars(golden.silent_report(), [(0, 2), (1, 1)], tmp_path, loud_from=30)
    assert _read(tmp_path)["host syncs/reads of tensors each step, diagnostic pass"] == [
        (30, 2.0),
        (31, 1.0),
    ]


def test_a_step_that_no_run_has_takes_no_memory(tmp_path):
    """A stranger's row of step 2^63 had a point made for every step before it."""
    write_scalars(golden.silent_report(), [(1, 2), (2**63, 1), (-(2**63), 1)], tmp_path)
    assert _read(tmp_path)["host syncs/reads of tensors each step, diagnostic pass"] == [
        (0, 0.0),
        (1, 2.0),
    ]


def test_gaps_are_left_out_and_nothing_writes_nothing(tmp_path):
    steps = (0.0, 1.0, 2.0, 2.0**64, math.inf, math.nan)
    gap = replace(
        golden.silent_report(),
        series=(Series("quiet", "us", steps, (1e3, math.nan, 3e3, 1e3, 1e3, 1e3)),),
    )
    write_scalars(gap, [], tmp_path / "gap")
    assert _read(tmp_path / "gap") == {"step time/quiet (ms)": [(0, 1.0), (2, 3.0)]}
    assert write_scalars(golden.silent_report(), [], tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_names_that_attack_do_not_stop_it(tmp_path):
    assert write_scalars(golden_attack.attack_report(), [], tmp_path) is not None
