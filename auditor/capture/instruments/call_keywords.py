"""Which names does the call that a frame is in give its arguments? Read from the bytecode, as the
line runs.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType

_CALLS_WITH_NAMES = frozenset({"CALL_FUNCTION_KW", "CALL_KW"})
"""Calls that take the names from the constant loaded right before them (3.10, and 3.13 on); before
others stands KW_NAMES.
"""


def keywords_given(frame: FrameType) -> tuple[str, ...]:
    """Names of the keywords as written in the call that ``frame`` waits for; none of those in
    ``**given``.
    """
    return _keywords(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=256)
def _keywords(code: CodeType, lasti: int) -> tuple[str, ...]:
    run = [
        each
        for each in dis.get_instructions(code)
        if each.offset <= lasti and each.opname != "PRECALL"
    ]  # of 3.11 alone
    if len(run) < 2 or "CALL" not in run[-1].opname:
        return ()
    call, names = run[-1], run[-2]
    if names.opname != "KW_NAMES" and not (
        call.opname in _CALLS_WITH_NAMES and names.opname == "LOAD_CONST"
    ):
        return ()
    return tuple(code.co_consts[names.arg or 0])  # argval is not filled in by 3.11
