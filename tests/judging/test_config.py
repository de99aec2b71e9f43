"""Settings: read, checked, and every mistake named with the way out."""

from dataclasses import Field

import pytest

from auditor.errors import AuditProblem
from auditor.judging import catalogue, config

RULES = catalogue.rules()


def settings(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    return config.load(tmp_path / "deep" / "er", RULES)


def test_everything_is_read_from_the_folder_above(tmp_path):
    knob, (default, _) = next(iter(RULES[0].knobs().items()))
    read = settings(
        tmp_path,
        f"""
[tool.audit]
select = ["SYNC", "mem005"]
ignore = ["SYNC003"]
fail-on = "warning"
per-file-ignores = {{ "scripts/*" = ["SYNC"] }}
[tool.audit.rules.{RULES[0].code}]
{knob} = {default}
""",
    )
    assert read.select == ("SYNC", "MEM005")
    assert read.ignore == ("SYNC003",)
    assert read.fail_on == "warning"
    assert read.per_file_ignores == {"scripts/*": ("SYNC",)}
    assert read.knobs == {RULES[0].code: {knob: default}}


def test_a_rule_with_knobs_of_its_own_is_a_dataclass():
    left = [r.code for r in RULES if any(isinstance(each, Field) for each in vars(r).values())]
    assert not left, "decorate them with @dataclass(frozen=True): their knobs are no fields"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.audit]\nselct = []\n", "did you mean 'select'?"),
        ("[tool.audit]\nfail-on = 'bad'\n", "it is one of error, warning, note, never"),
        ("[tool.audit]\nselect = 'SYNC'\n", "must be a list of codes"),
        ("[tool.audit.rules.SYNC099]\nx = 1\n", "there is no such rule"),
        ("[tool.audit.rules.SYNC001]\nno_such_knob = 1\n", "has no knob"),
        ("[tool.audit\n", "is not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, said):
    with pytest.raises(AuditProblem) as problem:
        settings(tmp_path, text)
    assert said in f"{problem.value.message} {problem.value.hint}"
    assert "pyproject.toml" in problem.value.message
