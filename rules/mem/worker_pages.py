"""MEM019: forked workers of a loader that copy the memory which they share, by reading it."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity
from auditor.recordings.schema.sync import WorkerPagesRow
from auditor.rule import Rule, knob

from .segments import HostMemory

MIB = 2**20


@dataclass(frozen=True)
class WorkersCopyTheDataset(Rule):
    """Each worker of a loader ends up with a copy of the dataset's Python objects."""

    code = "MEM019"
    severity = Severity.WARNING
    since = "0.3"
    advice = (
        "Keep the samples in one NumPy array or tensor, whose items have no reference counts (texts: "
        "one array of bytes and one of offsets), or in a file that __getitem__ reads."
    )

    least_mib: float = knob(128.0, "Report only if all copies come to at least this many MiB.")
    copied_kib: float = knob(128.0, "Report only if a later batch copies at least this many KiB.")
    share: float = knob(0.25, "Report a note below this share of the host's memory.")

    def detect(self, pages: Rows[WorkerPagesRow], host: HostMemory) -> Iterator[Finding]:
        for row in pages:
            late, copies = median(row.copied or (0,)), row.workers * row.nbytes
            if late < self.copied_kib * 1024 or copies < self.least_mib * MIB:
                continue
            yield Finding(
                row.home.site_at(row.file, row.line, row.function),
                f"each worker of the loader copies the memory of {row.name} as it reads it "
                f"({amounts.size(late)} for a batch): reading a Python object writes its "
                f"reference count. {amounts.count(row.workers, 'worker')} can come to hold "
                f"{amounts.size(copies)} more",
                facts=(
                    ("items", f"{row.n:,}"),
                    ("bytes of the items", f"about {amounts.size(row.nbytes)}"),
                ),
                severity=None if copies >= self.share * host.usable else Severity.NOTE,
            )
