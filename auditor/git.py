"""The user's repository, as git tells it."""

import os
import shutil
import subprocess

SECONDS = 20.0
"""That one call of git may take."""


def git(folder: str, *words: str, one_is_fine: bool = False) -> bytes | None:
    """What git prints; None if there is no git, or it refuses. With ``one_is_fine`` exit code 1
    is an answer too (``check-ignore``, ``diff``). No hook and no monitor that the repository names
    is run.
    """
    program = shutil.which("git")
    if program is None:
        return None
    quiet = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    try:
        done = subprocess.run(
            [program, "-C", folder, *quiet, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "GIT_LITERAL_PATHSPECS": "0", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode in (0, int(one_is_fine)) else None
