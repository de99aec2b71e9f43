"""Sixty formats of secrets with values drawn at random: none is seen in what a run leaves."""

import json

import pytest

from auditor import redaction
from tests.secret_formats import drawn

SEEDS = range(2)

PLACES = {
    "alone": ("{}", redaction.TEXT),
    "in output": ("step 3: connecting with {} failed", redaction.TEXT),
    "in an exception": ("RuntimeError: could not log in ({})", redaction.TEXT),
    "in a comment": ("x = 1  # {}\n", ".py"),
    "in a string": ("import os\nos.system({!r})\n", ".py"),
    "in a docstring": ('"""Run with\n\n    {}\n"""\n', ".py"),
}

HARMLESS = (
    "connect(password=args.password2, token=self.token_1)",
    '"""our_role: pass :data:`h11.CLIENT`; password: required of 8 letters."""',
    'help = "usage: --secret SECRET, --password=%s, TOKEN={token}"',
    "token = tokens[0]  # one token: embedding_layer_12 of the vocabulary",
    'raise ValueError("key: value pairs, pad_token=<pad>, max_tokens=512")',
    "docker run -u 1000:1000 curl",
    'headers = {"Cookie": f"session={session}"}',
    "loss=0.123 grad_norm=1.5 run=run-20261124_093747-abcd1234 commit=" + "0123456789" * 4,
)


@pytest.mark.parametrize("place", PLACES)
def test_no_format_is_seen(place):
    form, suffix = PLACES[place]
    for seed in SEEDS:
        for text, values in drawn(seed):
            shown = redaction.redacted(form.format(text).encode(), suffix)[0].decode()
            assert not [each for each in values if each in shown], (text, shown)


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_no_secret_stays(line):
    assert redaction.redacted(line.encode(), ".py") == (line.encode(), ())


def test_output_keeps_its_numbers():
    assert redaction.redacted_text(HARMLESS[-1]) == HARMLESS[-1]


TRAINER = """\
import os
import warnings
import torch

SECRETS = [
{listed}
]
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    loss = model(torch.ones(2)).sum()
    loss.backward(retain_graph=True), SECRETS[{one}]  # the line of a finding
    optimizer.step()
    optimizer.zero_grad()
    for secret in SECRETS:
        print("trying", secret)
    warnings.warn("tried " + SECRETS[step])
raise RuntimeError("; ".join(SECRETS))
"""


def test_no_file_that_a_run_leaves_shows_one(tmp_path, audit):
    found = drawn(7)
    listed = "\n".join(f"    {text!r}," for text, _ in found)
    (tmp_path / "train.py").write_text(TRAINER.format(listed=listed, one=0))
    given = [text for text, _ in found[::9]]
    done = audit(
        *("run", "train.py", "--out", "out", "--device", "cpu", "--steps", "3"),
        *("--format", "sarif=out.sarif", "--", *given),
        cwd=tmp_path,
    )
    assert done.returncode in (0, 3), done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "train.py"]
    assert {"report.json", "report.html", "manifest.json", "output.txt"} <= {f.name for f in files}
    warnings = json.loads((tmp_path / "out" / "report.json").read_text())["warnings"]
    assert any("because it looks like a secret" in each for each in warnings)
    for path in files:
        raw = path.read_bytes()
        assert not [value for _, values in found for value in values if value.encode() in raw], path
