"""Every rule's words in one listing, for an editor: ``python -m tests.rules.messages [CODE ...]``.

Each rule's first example is audited; below its line stand the message, the facts, the advice and
the help of its knobs. It is read by people, not compared: 160 small runs take some minutes.
"""

import sys
import tempfile
import textwrap
from pathlib import Path

from auditor.model import Finding
from tests.rules.test_rules import RULES, example


def words(finding: Finding) -> list[str]:
    """What a report says of a finding, a paragraph each."""
    facts = [f"{label}: {text}" for label, text in finding.facts]
    advice = [f"fix: {finding.remedy.text}"] if finding.remedy is not None else []
    return [finding.message, *facts, *advice]


def listed(code: str, folder: Path) -> list[str]:
    """The paragraphs of one rule."""
    rule = RULES[code]
    made = example(code, "Example", folder)
    told = []
    if isinstance(made, str):
        told.append(f"not shown: the example {made}")
    else:
        lines = made[0].splitlines()
        for finding in made[1]:
            where = finding.site.line if finding.site is not None else None
            told += [f"> {lines[where - 1].strip()}"] if where else []
            told += words(finding)
    helps = [f"{name} ({default!r}): {text}" for name, (default, text) in rule.knobs().items()]
    return [f"{code} {rule.name()}: {rule.title()}", *told, *helps]


if __name__ == "__main__":
    for code in sys.argv[1:] or RULES:
        with tempfile.TemporaryDirectory() as folder:
            first, *others = listed(code, Path(folder))
        print(first)
        for each in others:
            print(textwrap.fill(each, 96, initial_indent="  ", subsequent_indent="    "))
        print(flush=True)
