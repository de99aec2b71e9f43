"""Any torch.profiler trace: read to columns at speed, and the evidence in it. Imported only for
traces (numpy).

``Timeline.of(path)`` reads one file; its properties are the evidence, each computed when first
asked for. ``read(path)`` gives the columns alone. ``fleet(trace_files(folder))`` takes a folder of
ranks. All raise only ``AuditProblem`` on what a file may hold; what was lost on the way is in
``trace.warnings``.
"""

from auditor.timeline.reading import read
from auditor.timeline.timeline import Fleet, Timeline, fleet, trace_files
from auditor.timeline.trace import Trace

__all__ = ["Fleet", "Timeline", "Trace", "fleet", "read", "trace_files"]
