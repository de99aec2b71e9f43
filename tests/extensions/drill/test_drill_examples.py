"""The examples under a drill: what their write-ups say of both trainers is shown."""

import os

import pytest

from tests.test_examples import EXAMPLES

pytestmark = pytest.mark.skipif(
    not os.environ.get("AUDITOR_SLOW"), reason="takes a minute: AUDITOR_SLOW=1 runs it"
)

CASES = {
    ("qc_trainer/broken", "oom"): (1, "with RuntimeError: Trying to backward"),
    ("qc_trainer/repaired", "oom"): (0, "it went on for"),
    ("text_recogniser/broken", "nan"): (1, "the NaN is in"),
    ("text_recogniser/repaired", "nan"): (0, "it went on for"),
}


@pytest.mark.parametrize(("name", "what"), CASES, ids="-".join)
def test_a_drill_tells_them_apart(audit, tmp_path, name, what):
    code, said = CASES[name, what]
    words = ("drill", "trainer:step", "--inject", f"{what}@4", "--steps", "8")
    done = audit(*words, "--out", str(tmp_path / "out"), cwd=EXAMPLES / name)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout
