"""Any torch.profiler trace: read to columns at speed, and the evidence in it. Imported only by who looks at a trace (numpy)."""

from __future__ import annotations

from auditor.timeline.ranks import Fleet, fleet, trace_files
from auditor.timeline.reading import read
from auditor.timeline.timeline import Timeline
from auditor.timeline.trace import Trace

__all__ = ["Fleet", "Timeline", "Trace", "fleet", "read", "trace_files"]
