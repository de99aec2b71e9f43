"""``audit agents``: what a coding agent should know of this tool, for AGENTS.md or as a skill."""

from pathlib import Path

FRONT = """\
---
name: audit-training-step
description: >-
  Finds what makes a PyTorch training step slow, leak memory or produce NaN, with a price and a patch
  for each line, and checks that a fix worked. Use after changes to training code, or when training
  is slow, runs out of memory or diverges.
---

"""


def section() -> str:
    """A section for AGENTS.md, which begins with its heading."""
    return Path(__file__).with_suffix(".md").read_text("utf-8")


def skill() -> str:
    """A SKILL.md: the same with the front matter that agents choose a skill by."""
    return FRONT + section()
