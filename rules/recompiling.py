"""What the rules about recompilations have in common: who, and what to do about a guard."""

from __future__ import annotations

from auditor.evidence.recorded.compiles import Recompiled


def named(each: Recompiled) -> str:
    """The function in words."""
    return f"`{each.function}`" if each.function else "a compiled function"


def because(each: Recompiled) -> str:
    """What of this line changes. A guard of an argument has the line of the call."""
    where = "what is read here" if each.own else "what it is given here"
    return f"{where} changes (`{each.guard}`)"


def advice(guard: str) -> str:
    """What to do about a guard like this."""
    if "size mismatch" in guard or ".size()" in guard or "stride" in guard:
        return (
            "Let the length vary: drop dynamic=False, or name it with "
            "torch._dynamo.mark_dynamic(x, 1) before the call; or pad to a few fixed lengths."
        )
    if "'lr'" in guard:
        return "Make the learning rate a tensor: lr=torch.tensor(1e-3)."
    return (
        "Keep what changes on each step out of the compiled function, or hand it in as a tensor: "
        "a Python value that the function reads is part of what it was compiled for."
    )
