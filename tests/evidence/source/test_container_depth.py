"""A container has no detach(): at which depth does a line store its value, and does the tensor lie
there?
"""

import pytest
from auditor.rules.graph.kept import stores_at_depth

from auditor.evidence.source.files import Source
from auditor.model import Site


@pytest.mark.parametrize(
    ("line", "depth"),
    [
        ("total += loss", 0),
        ("self.last = loss", 0),
        ("self.last: Tensor = out['loss']", 0),
        ("kept.append(loss)", 1),
        ("self.kept.add(loss)", 1),
        ("kept += [loss]", 1),
        ("kept[i] = loss", 1),
        ("hist['loss'].append(loss)", 2),
        ("hist.setdefault('loss', []).append(loss)", 2),
        ("kept.append({'loss': loss})", 2),
        ("kept = [[loss]]", 2),
    ],
)
def test_a_value_lies_where_the_line_puts_it_and_nowhere_else(line: str, depth: int) -> None:
    source = Source({"train.py": f"def step():\n    if True:\n        {line}\n"})
    at = [
        number
        for number in range(4)
        if stores_at_depth(source, Site("train.py", 3, line, "step"), number)
    ]
    assert at == [depth]


@pytest.mark.parametrize(
    "line",
    ["out, self.hidden = cell(x)", "print(loss)", "kept.append(loss, 1)", "meter.update(loss)"],
)
def test_of_other_lines_nothing_is_said(line: str) -> None:
    source = Source({"train.py": line + "\n"})
    assert not any(
        stores_at_depth(source, Site("train.py", 1, line, "step"), number) for number in range(4)
    )
