"""Source before and after a patch, as one text."""

import re

GONE, NEW = re.compile(r"\[-(.*?)-\]", re.DOTALL), re.compile(r"\{\+(.*?)\+\}", re.DOTALL)


def sides(text):
    """Before and after of a text marked ``[-so-]`` and ``{+so+}``, as by git's word-diff."""
    return GONE.sub(r"\1", NEW.sub("", text)), NEW.sub(r"\1", GONE.sub("", text))
