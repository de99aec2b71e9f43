"""The project as it was in a commit."""

from __future__ import annotations

import os

from auditor.errors import AuditProblem
from auditor.git import git


def files_of(revision: str, folder: str) -> tuple[dict[str, bytes | None], str]:
    """The files of ``folder`` that git follows and that were otherwise in this commit, by their paths
    below it: as they were there, None where there was none. And a sentence on what lies outside of
    ``folder`` and is taken as it is now; empty where nothing does.

    Raises :class:`AuditProblem` where there is no such commit, or nothing has changed since.
    """
    named = None if revision.startswith("-") else git(folder, "rev-parse", f"{revision}^{{commit}}")
    if not named:
        where = "" if git(folder, "rev-parse", "--git-dir") else " (it is in no git repository)"
        raise AuditProblem(
            f"--against {revision}: git knows no such commit here{where}",
            "name a commit, a branch or a tag: --against HEAD~1",
        )
    commit = named.decode().strip()
    changed = _changed(folder, commit, "--relative")
    elsewhere = len(_changed(folder, commit)) - len(changed)
    if not changed:
        raise AuditProblem(
            f"--against {revision}: no file of this directory has changed since",
            "name an earlier commit: --against HEAD~1",
        )
    files = {
        path: None if status == "A" else _git(folder, "cat-file", "blob", f"{commit}:./{path}")
        for path, status in changed.items()
    }
    many = f"{elsewhere:,} file{'s' * (elsewhere != 1)}"
    said = f"{many} outside of this directory changed as well, and are taken as they are now"
    return files, said if elsewhere else ""


def _changed(folder: str, commit: str, *options: str) -> dict[str, str]:
    """Git's letter for what became of each file since."""
    words = ("diff", "--name-status", "-z", "--no-renames", "--no-ext-diff")
    told = _git(folder, *words, "--ignore-submodules=all", *options, commit, "--").split(b"\0")
    pairs = zip(told[::2], told[1::2], strict=False)  # an empty one ends them
    return {os.fsdecode(path): os.fsdecode(status) for status, path in pairs}


def _git(folder: str, *words: str) -> bytes:
    """Raises :class:`AuditProblem` where git refuses, or takes too long."""
    told = git(folder, *words)
    if told is None:
        raise AuditProblem(f"git {words[0]} failed in {folder}, or took too long", "try it there")
    return told
