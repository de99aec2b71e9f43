"""``python -m auditor.cli.manual [--write]``: print the manual, or write its files into ``rules/``
of a checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

from auditor.cli import console
from auditor.judging.catalogue import own_rules
from auditor.judging.manual import written


def main() -> None:
    """Print the manual as markdown; with ``--write``, write ``rules/README.md`` and the data that
    ``audit explain`` reads.
    """
    files = written(own_rules())
    if "--write" not in sys.argv[1:]:
        console.hand_over(files["README.md"])
        return
    for name, text in files.items():
        (Path(__file__).resolve().parents[2] / "rules" / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
