"""Names of torch's functions that make a tensor out of sizes, numbers or chance: evidence tells
them, patches move them.
"""

from __future__ import annotations

FACTORIES = frozenset(
    [
        "arange",
        "empty",
        "empty_like",
        "eye",
        "full",
        "full_like",
        "linspace",
        "normal",
        "ones",
        "ones_like",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "zeros",
        "zeros_like",
    ]
)
