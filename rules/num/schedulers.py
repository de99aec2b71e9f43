"""Where the source makes its one scheduler of learning rates."""

from __future__ import annotations

from auditor.evidence.source.files import Source, the_only
from auditor.model import Site

SCHEDULERS = tuple(
    """
    LambdaLR MultiplicativeLR LinearLR ExponentialLR OneCycleLR CyclicLR SequentialLR
    ChainedScheduler
    """.split()
)
"""Classes of ``torch.optim.lr_scheduler`` that can raise a rate."""


def scheduler(source: Source) -> Site | None:
    """The line that makes it, if the source makes one such scheduler and on one line."""
    made = [name for name in SCHEDULERS if source.first_call(name) is not None]
    name = the_only(made)
    return None if name is None else source.only_call(name)
