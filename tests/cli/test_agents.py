"""``audit agents``: what it says is true of this command line."""

import re
import shlex

import pytest
import yaml
from click.testing import CliRunner

from auditor.cli.main import main


def printed(*words):
    done = CliRunner().invoke(main, ["agents", *words])
    assert done.exit_code == 0
    return done.stdout


def test_the_section_is_one_and_begins_with_its_heading():
    heads = re.findall(r"^#+ ", printed(), re.MULTILINE)
    assert printed().startswith("## ") and heads.count("## ") == 1 and "# " not in heads


def test_the_skill_is_the_section_with_front_matter():
    _, front, body = printed("--skill").split("---\n", 2)
    facts = yaml.safe_load(front)
    assert set(facts) == {"name", "description"}
    assert re.fullmatch(r"[a-z0-9-]{1,64}", facts["name"])
    assert 0 < len(facts["description"]) <= 1024
    assert body.lstrip("\n") == printed()


def commands():
    return re.findall(r"`audit ([^`|]+)", printed())


@pytest.mark.parametrize("written", commands())
def test_every_command_that_it_names_exists_with_its_options(written):
    name, *words = shlex.split(written)
    command = main.commands[name]
    known = {word for each in command.params for word in each.opts}
    assert {word for word in words if word.startswith("--") and word != "--"} <= known
