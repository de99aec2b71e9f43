"""Logarithms of probabilities: the stable function that says the same."""

import pytest
from auditor.rules.num.formulas import stable_log

from auditor.evidence.source.files import Source
from auditor.model import Site


def form(text, *, cast=False):
    found = stable_log(Source({"a.py": text}), Site("a.py", 1), cast=cast)
    return found.value if found is not None else None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torch.log(torch.sigmoid(x))", "nn.functional.logsigmoid(x)"),
        ("torch.log(torch.sigmoid(x) + 1e-8)", "nn.functional.logsigmoid(x)"),
        ("torch.log(1e-8 + x.sigmoid())", "nn.functional.logsigmoid(x)"),
        ("torch.log(F.softmax(x, dim=-1))", "log_softmax(x, dim=-1)"),
        ("torch.log(x.softmax(-1, **more))", "log_softmax(x, -1, **more)"),
        ("torch.log(nn.functional.softmax(x, 1))", "log_softmax(x, 1)"),
        ("torch.log(sigmoid(x))", "nn.functional.logsigmoid(x)"),
        ("torch.log(torch.sigmoid(x) + y)", None),
        ("torch.log(torch.sigmoid(x) - 1e-8)", None),
        ("torch.log(1 + 2)", None),
        ("torch.log(torch.relu(x))", None),
        ("torch.log(torch.sigmoid())", None),
        ("torch.log(torch.sigmoid(*x))", None),
        ("torch.log(torch.sigmoid(x), out=y)", None),
        ("torch.log(torch.sigmoid(x), 2)", None),
        ("math.log(torch.sigmoid(x))", None),
        ("log(torch.sigmoid(x))", None),
        ("self.torch.log(torch.sigmoid(x))", None),
        ("torch.exp(torch.sigmoid(x))", None),
        ("f(torch.log(y), torch.log(torch.sigmoid(x)))", "nn.functional.logsigmoid(x)"),
    ],
)
def test_what_is_written_instead(text, value):
    assert form(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("torch.log(torch.sigmoid(x))", "nn.functional.logsigmoid(x.float())"),
        ("torch.log(torch.sigmoid(x[0]))", "nn.functional.logsigmoid(x[0].float())"),
        ("torch.log(torch.sigmoid(f(x)))", "nn.functional.logsigmoid(f(x).float())"),
        ("torch.log(torch.softmax(x.y, 1))", "log_softmax(x.y.float(), 1)"),
        ("torch.log(torch.sigmoid(x + y))", "nn.functional.logsigmoid((x + y).float())"),
        ("torch.log(torch.sigmoid(-x))", "nn.functional.logsigmoid((-x).float())"),
    ],
)
def test_in_half_precision_the_input_is_cast(text, value):
    assert form(text, cast=True) == value
