"""What an expression reads, by name."""

import ast

import pytest
from auditor.rules.reading import keeps_its_value, values_at

from auditor.evidence.source.files import span_of
from auditor.syntax.index import index_of


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("loss.item()", {"loss"}),
        ("loss.detach().cpu().numpy()", {"loss"}),
        ("self.out.loss.item()", {"self.out.loss"}),
        ("math.isnan(loss)", {"loss"}),
        ("torch.isfinite(loss).all()", {"loss"}),
        ("float(loss)", {"loss"}),
        ("f'{loss:.3f} {step}'", {"loss", "step"}),
        ("loss > best", {"loss", "best"}),
        ("losses[i].item()", {"losses"}),
        ("(pred == y).sum().item()", {"pred", "y"}),
        ("model(x).loss.item()", {"x"}),
        ("print(loss, end=last)", {"loss", "last"}),
        ("3", set()),
    ],
)
def test_names_that_are_read(text, values):
    index = index_of(text)
    (whole,) = index.of(ast.Expr)
    assert values_at(index, span_of(whole.value)) == values
    assert values_at(index, None) == frozenset()


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("shown = loss.detach()", "loss"),
        ("shown = loss", "loss"),
        ("shown = loss.mean()", "shown"),
        ("shown = loss.detach()\nshown = 3", "shown"),
    ],
)
def test_another_name_of_a_value(given, value):
    index = index_of(f"{given}\nshown.item()")
    (whole,) = index.of(ast.Expr)
    assert values_at(index, span_of(whole.value)) == {value}


TEXT = "loss = a()\nread(loss)\nfor loss in b:\n    pass\nself.x = 1\nread(loss)\n"


@pytest.mark.parametrize(
    ("name", "above", "below", "kept"),
    [
        ("loss", 2, 3, True),
        ("loss", 2, 6, False),
        ("loss", 4, 6, True),
        ("self.x", 2, 5, True),
        ("self.x", 2, 6, False),
    ],
)
def test_a_name_that_is_given_another_value_between(name, above, below, kept):
    assert keeps_its_value(index_of(TEXT), name, above, below) is kept
