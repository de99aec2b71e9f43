"""Re-runs that run nothing: what a program would take, by a formula."""

from collections.abc import Callable
from dataclasses import dataclass, field

from auditor.extensions.plan.measured import BEFORE, STEP, UPDATE, Loader, Measured
from auditor.extensions.plan.reruns import Rerun, Reruns
from auditor.recordings.schema.other_runs import PlannedBlocksRow, PlannedOptimizerRow

MIB = 1 << 20

BLOCKS = PlannedBlocksRow(name="train:Block", n=4, bytes=10 * MIB, at=None)
ADAM = PlannedOptimizerRow(name="AdamW", takes=["foreach", "fused"], on=[], off=[], at=None)


def measured(batch, step, update=0, *, slack=1.0, **more):
    """A re-run with these peaks, in bytes."""
    peak = max(step, update)
    known: dict[str, object] = {
        "allocated": peak,
        "reserved": round(peak * slack),
        "steps": 4,
        "phases": {BEFORE: 0, STEP: step, UPDATE: update},
        "purposes": (
            ("parameters", 40 * MIB),
            ("gradients", 40 * MIB),
            ("optimizer state", 80 * MIB),
        ),
        "shapes": ((batch, 128),),
        "float32": True,
        "blocks": BLOCKS,
        "optimizers": (ADAM,),
        "loaders": (Loader("train.py", 30, batch, 10_000, batch * 100.0),),
        "seconds": 1.0,
    }
    return Measured(**{**known, **more})  # type: ignore[arg-type]


@dataclass
class Formula(Reruns):
    """``peak`` gives bytes of forward and backward for a batch size and what is asked for."""

    peak: Callable[[int, Rerun], float] = lambda batch, wanted: 0.0
    update: int = 0
    slack: float = 1.0
    size: int = 8
    even: bool = True
    varies: float = 0.0
    obeys: bool = True
    asked: list[Rerun] = field(default_factory=list)
    stop_at: int = 10**9

    def run(self, wanted):
        """By the formula; interrupted at re-run ``stop_at``."""
        self.n += 1
        self.asked.append(wanted)
        if self.n == self.stop_at:
            raise KeyboardInterrupt
        batch = (wanted.batch or self.size) if self.obeys else self.size
        changed = {"batch"} if wanted.batch else set()
        changed |= {"checkpointed"} if wanted.change.checkpointed else set()
        changed |= {"autocast"} if wanted.change.autocast else set()
        changed |= {"largest"} if wanted.change.largest else set()
        changed |= {"optimizer"} if wanted.change.optimizer else set()
        return measured(
            batch,
            round(self.peak(batch, wanted)),
            self.update,
            slack=self.slack,
            varies=self.varies,
            loaders=(Loader("train.py", 30, batch, 10_000, batch * 100.0, self.even),),
            changed=frozenset(changed),
        )


def formula(peak, **more):
    """Re-runs of a program that takes ``peak``."""
    return Formula("train.py", (), "null", "T4", peak=peak, **more)  # type: ignore[arg-type]
