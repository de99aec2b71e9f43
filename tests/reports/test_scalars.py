"""Scalars for TensorBoard: its own reader reads them back, units and steps are right, gaps are left out."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_attack
import golden_report as golden

from auditor.pictures import Series
from auditor.tensorboard_tab import scalars


def _read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def _row(step: int, n: int, lib: str = "", name: str = "loud") -> dict[str, Any]:
    return {"pass": name, "step": step, "n": n, "lib": lib, "at": 1, "kind": "item"}


def test_tensorboard_reads_step_times_memory_and_syncs(tmp_path: Path) -> None:
    reads = [_row(0, 2), _row(0, 1), _row(2, 4), _row(1, 9, lib="loader"), _row(1, 9, name="origin")]
    scalars.write(golden.rich_report(), reads, tmp_path)
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
    assert read["host syncs/reads of tensors each step, diagnostic pass"] == [(0, 3.0), (1, 0.0), (2, 4.0)]


def test_syncs_stand_at_the_steps_of_the_run(tmp_path: Path) -> None:
    scalars.write(golden.silent_report(), [_row(0, 2), _row(1, 1)], tmp_path, loud_from=30)
    assert _read(tmp_path)["host syncs/reads of tensors each step, diagnostic pass"] == [(30, 2.0), (31, 1.0)]


def test_written_again_it_is_the_same_file(tmp_path: Path) -> None:
    once = scalars.write(golden.rich_report(), [], tmp_path)
    assert once is not None
    content = once.read_bytes()
    assert scalars.write(golden.rich_report(), [], tmp_path) == once
    assert [path.name for path in tmp_path.iterdir()] == [once.name]
    assert once.read_bytes() == content


def test_gaps_are_left_out_and_nothing_writes_nothing(tmp_path: Path) -> None:
    gap = replace(golden.silent_report(), series=(Series("quiet", "us", (0.0, 1.0, 2.0), (1e3, math.nan, 3e3)),))
    scalars.write(gap, [], tmp_path / "gap")
    assert _read(tmp_path / "gap") == {"step time/quiet (ms)": [(0, 1.0), (2, 3.0)]}
    assert scalars.write(golden.silent_report(), [], tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_names_that_attack_do_not_stop_it(tmp_path: Path) -> None:
    assert scalars.write(golden_attack.attack_report(), [], tmp_path) is not None
