"""What CKPT005 says of a program that goes on from its own checkpoints."""

import pytest
from auditor.rules.ckpt.resuming import CheckpointCannotResume, Resumes, Unsaved

from auditor.model import Severity, Site
from auditor.rule import NotLooked


def unsaved(kind: str) -> Resumes:
    save, resume, made = (Site("train.py", line, "", "...") for line in (5, 12, 20))
    return Resumes((Unsaved(kind, save, resume, made, "epoch"),), looked=True)


@pytest.mark.parametrize(
    ("kind", "severity"), [("AdamW", Severity.WARNING), ("SGD", Severity.NOTE)]
)
def test_what_a_resume_goes_on_without(kind, severity):
    rule = CheckpointCannotResume()
    (finding,) = rule.detect(unsaved(kind))
    assert (finding.severity or rule.severity) is severity
    assert (
        f"the {kind} created at train.py:20 is never saved: after a resume its moments"
        in finding.message
    )
    assert [place.site.line for place in finding.places] == [5, 12]
    assert rule.remedy(finding).text.startswith("Add the optimizer's state_dict()")


def test_a_program_that_resumes_nothing_was_not_looked_at():
    with pytest.raises(NotLooked, match="no checkpoint from which training resumes"):
        list(CheckpointCannotResume().detect(Resumes()))
    assert list(CheckpointCannotResume().detect(Resumes(looked=True))) == []
