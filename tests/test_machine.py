"""How much of the machine a process may use."""

import os
import sys
from pathlib import Path

import psutil

from auditor.machine import free_memory, host_memory, processors


def groups(root: Path, own: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_the_lowest_limit_of_the_groups_above_counts(tmp_path):
    files = {"jobs__memory.max": str(3 << 30), "jobs__one__memory.max": str(5 << 20)}
    assert host_memory(groups(tmp_path / "a", "0::/jobs/one", **files)) == 5 << 20
    files["jobs__one__memory.max"] = "max"
    assert host_memory(groups(tmp_path / "b", "0::/jobs/one", **files)) == min(
        3 << 30, psutil.virtual_memory().total
    )


def test_version_one_of_control_groups(tmp_path):
    limited = groups(
        tmp_path, "12:memory:/docker/abc", **{"memory__memory.limit_in_bytes": str(7 << 20)}
    )
    assert host_memory(limited) == 7 << 20


def test_free_memory_is_what_a_group_has_not_used(tmp_path):
    files = {"jobs__memory.max": str(9 << 20), "jobs__memory.current": str(5 << 20)}
    files["jobs__memory.stat"] = f"anon {3 << 20}\ninactive_file {2 << 20}"
    assert free_memory(groups(tmp_path / "a", "0::/jobs", **files)) == 6 << 20
    files = {"memory__memory.limit_in_bytes": "4096", "memory__memory.usage_in_bytes": "1024"}
    assert free_memory(groups(tmp_path / "b", "0::/", **files)) == 3072
    assert 0 < free_memory() <= host_memory()


def test_a_quota_of_a_group_counts_as_processors(tmp_path):
    there = processors(groups(tmp_path / "a", "0::/jobs", **{"jobs__cpu.max": "max 100000"}))
    assert there == (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count())
    assert processors(groups(tmp_path / "b", "0::/jobs", **{"jobs__cpu.max": "50000 100000"})) == 1
    files = {"cpu__cpu.cfs_quota_us": "100000", "cpu__cpu.cfs_period_us": "100000"}
    assert processors(groups(tmp_path / "c", "3:cpu:/a", **files)) == 1
    files["cpu__cpu.cfs_quota_us"] = "-1"
    assert processors(groups(tmp_path / "d", "3:cpu:/a", **files)) == there
