"""Facts about the machine: the RAM that a process may use."""

from pathlib import Path

import psutil

from auditor.capture.instruments.environment import host_memory


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
