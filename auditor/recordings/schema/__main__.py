"""``python -m auditor.recordings.schema > docs/recording.md``."""

from __future__ import annotations

import sys

from auditor.recordings.schema.page import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
