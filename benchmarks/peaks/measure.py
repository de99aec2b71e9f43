"""What each program of this folder does around its steps: peaks are taken, and printed as one line."""

from __future__ import annotations

import json
import sys

import torch


class Peaks:
    """The highest figures of torch's caching allocator since the last ``restart``, over all
    phases, in bytes.
    """

    def __init__(self) -> None:
        self.allocated = self.reserved = self.used = 0

    def restart(self) -> None:
        """What was before does not count: ``torch.cuda.reset_peak_memory_stats()``."""
        self.note()
        torch.cuda.reset_peak_memory_stats()
        self.allocated = self.reserved = self.used = 0

    def note(self) -> None:
        """Take what has been the peak by now."""
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        self.allocated = max(self.allocated, torch.cuda.max_memory_allocated())
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved())
        self.used = max(self.used, total - free)

    def tell(self, **more: object) -> None:
        """Print the figures, and what else the program knows, as the last line of its output."""
        self.note()
        figures = {"allocated": self.allocated, "reserved": self.reserved, "used": self.used}
        json.dump({**figures, **more}, sys.stdout)
        print()
