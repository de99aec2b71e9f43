"""OPT013 and 14: state of an optimizer that is lost."""

from __future__ import annotations

from auditor import amounts
from auditor.recordings.schema.graph import CensusRow

from ..census import CensusSays


class OptimizerMadeAnew(CensusSays):
    """An optimizer is made again and again, and its state begins anew."""

    code = "OPT013"
    kind = "remade"
    advice = (
        "Create the optimizer once, before the loop over the epochs, and pass it on; set "
        'group["lr"] or use a scheduler to change its rate.'
    )

    def said(self, row: CensusRow) -> str:
        return (
            f"{row.name} is created here again and again over the same "
            f"{amounts.count(row.n, 'parameter')}, the last time after "
            f"{amounts.count(row.steps, 'step')}: each time its state (momentum, moments) is lost"
        )


class LoadedStateIsLost(CensusSays):
    """The state that an optimizer loaded is lost: another one steps."""

    code = "OPT014"
    kind = "unread"
    advice = "Create the optimizer first, call its load_state_dict(), and step that optimizer."

    def said(self, row: CensusRow) -> str:
        return (
            f"this {row.name} steps with empty state: the state loaded at "
            f"{row.site_of(row.other_at)} went to another {row.name} over the same parameters, "
            "which never steps"
        )


class SchedulerOfAnother(CensusSays):
    """A scheduler sets the rate of an optimizer that no longer steps."""

    code = "OPT016"
    kind = "stale"
    advice = (
        "Create the scheduler after the optimizer that it belongs to, each time that one is "
        "created; or keep the optimizer and call add_param_group()."
    )

    def said(self, row: CensusRow) -> str:
        return (
            f"this {row.other} replaced the optimizer of the {row.name} that steps at "
            f"{row.site_of(row.other_at)}: its learning rate never changes"
        )
