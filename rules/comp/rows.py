"""What probes of COMP rules write, and these rules read."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, PassRow, doc


class LateHookRow(PassRow, kw_only=True):
    """At a pass's end, one row per line that registered hooks of modules when something had been
    compiled already. Hooks that others may pickle (no lambdas, no inner functions) have none.
    """

    part = "late_hooks"
    when = "warmup, quiet, eager_held"

    at: At
    what: Annotated[str, doc("class of the module that the first of them is on")]
    steps: Annotated[int, doc("steps of the pass through which one of them was registered")] = 0
    ran: Annotated[int, doc("of these, steps in which Python called one of them")] = 0
    again: Annotated[
        bool, doc("something was compiled since the first of them, which may hold them by now")
    ] = False
