"""Batches of the user's own class, which ``pin_memory=True`` passes over."""

import pytest
from auditor.rules.data.datasets import unpinned_class

from auditor.evidence.source.files import Source

OWN = """\
@dataclass
class Pairs:
    x: object
def merge(rows):
    batch = Pairs(torch.stack(rows))
    return batch
"""


@pytest.mark.parametrize(
    ("text", "collate", "line"),
    [
        (OWN, "merge", 2),
        (OWN, "Trainer.merge", 2),
        (OWN, "Pairs", 2),
        (OWN, "default_collate", None),
        (OWN.replace("Pairs:", "Pairs(NamedTuple):"), "merge", None),
        (OWN.replace("Pairs:", "Pairs(dict):"), "merge", None),
        (OWN.replace("Pairs:", "Pairs(Data):"), "merge", None),
        (OWN.replace("Pairs:", "Pairs(Generic[T]):"), "merge", 2),
        (
            OWN.replace("    x: object", "    def pin_memory(self):\n        return self"),
            "merge",
            None,
        ),
        (OWN.replace("return batch", "return {'x': batch}"), "merge", None),
        (OWN.replace("return batch", "return Pairs(1) if rows else None"), "merge", None),
        ("def merge(:", "merge", None),
    ],
)
def test_the_class_that_is_passed_over(text, collate, line):
    found = unpinned_class(Source({"a.py": text}), collate)
    assert (found and (found.name, found.site.line)) == (line and ("Pairs", line))
