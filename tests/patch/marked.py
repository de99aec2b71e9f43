"""Source before and after a patch, as one text."""

import re

GONE, NEW = re.compile(r"\[-(.*?)-\]", re.DOTALL), re.compile(r"\{\+(.*?)\+\}", re.DOTALL)


def sides(text: str) -> tuple[str, str]:
    """A text with ``[-what goes-]`` and ``{+what comes+}``, as ``git diff --word-diff`` marks them:
    before and after.
    """
    return GONE.sub(r"\1", NEW.sub("", text)), NEW.sub(r"\1", GONE.sub("", text))
