"""What an index and a release take from here: metadata, citation, workflow, the documents' tag."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import auditor

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TAG = f"v{PROJECT['version']}"
STATED = ("pyproject.toml", "auditor/__init__.py", "CITATION.cff", "CHANGELOG.md", "README.md")
RECIPE = "ci/conda/recipe.yaml"
COPIED = (*STATED, RECIPE, "ci/Dockerfile", "ci/for_index.py")


def read(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("for_index", ROOT / "ci/for_index.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copied(tmp_path):
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def prepared(folder, tag, repository="someone/torch-step-audit"):
    words = [sys.executable, str(folder / "ci/for_index.py"), tag, repository]
    return subprocess.run(words, capture_output=True, text=True, check=False)


# -- metadata --------------------------------------------------------------------------------------


def test_the_citation_is_one_of_this_version():
    cited = read("CITATION.cff")
    assert set(cited) >= {"cff-version", "message", "title", "authors", "version", "date-released"}
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert all({"name"} <= set(each) for each in cited["authors"])
    assert cited["version"] == PROJECT["version"] == auditor.__version__
    assert cited["license"] == PROJECT["license"]
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\n## {cited['version']} ({cited['date-released']})\n" in log


def test_conda_installs_what_pip_installs():
    """Under the names that conda-forge has for them."""
    recipe, renamed = read(RECIPE), {"torch": "pytorch", "isal": "python-isal"}
    assert recipe["context"]["version"] == PROJECT["version"]
    (entry,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(entry)]
    asked = {"python": PROJECT["requires-python"]}
    for each in PROJECT["dependencies"]:
        name, least = each.partition(";")[0].split(">=")
        asked[renamed.get(name, name)] = f">={least}"
    assert dict(map(str.split, recipe["requirements"]["run"])) == asked


def test_the_metadata_names_each_python_from_the_oldest_on():
    versions = re.findall(r"Python :: 3\.(\d+)", "\n".join(PROJECT["classifiers"]))
    oldest = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert [int(each) for each in versions] == list(range(oldest, oldest + len(versions)))
    assert not [each for each in PROJECT["classifiers"] if each.startswith("License ::")], (
        "a build with a licence expression refuses them"
    )


def test_each_address_of_the_project_leads_to_its_repository(maker):
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= set(PROJECT["urls"])
    for address in PROJECT["urls"].values():
        assert address.startswith(maker.HOME)
        _, _, path = address.partition("/main/")
        assert (ROOT / path).exists()
    assert read("CITATION.cff")["repository-code"] == maker.HOME


# -- the workflow ----------------------------------------------------------------------------------


def test_a_release_publishes_what_was_built_and_holds_no_token():
    flow = read(".github/workflows/release.yml")
    (tags,) = flow[True].values()  # YAML 1.1 reads "on" as true
    assert tags == {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}
    build, publish = flow["jobs"]["build"], flow["jobs"]["publish"]
    assert flow["permissions"] == {"contents": "read"} and "permissions" not in build
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"]
    assert publish["needs"] == "build"
    left, taken = (
        next(s["with"] for s in job["steps"] if f"{word}-artifact" in s.get("uses", ""))
        for job, word in ((build, "upload"), (publish, "download"))
    )
    assert (left["name"], left["path"]) == (taken["name"], taken["path"])
    assert not [step for step in publish["steps"] if "run" in step], "it builds nothing"
    words = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    assert "secrets." not in words and "password" not in words and "${{" not in words
    commands = "\n".join(step.get("run", "") for step in build["steps"])
    assert "python -m build" in commands and "twine check --strict dist/*" in commands
    assert '"$GITHUB_REF_NAME" "$GITHUB_REPOSITORY"' in commands
    (folder,) = re.findall(r"^cd (\S+)$", commands, re.MULTILINE)
    assert (ROOT / folder / "trainer.py").is_file()


def test_a_tag_that_is_not_the_version_is_refused(copied):
    log = copied / "CHANGELOG.md"
    done = prepared(copied, "v9.9.9")
    assert done.returncode == 1
    for name in STATED[:4]:
        assert f"{name} has {PROJECT['version']}, the tag is v9.9.9" in done.stderr
    log.write_text(log.read_text("utf-8").replace(f"## {PROJECT['version']} (", "## Next ("))
    assert "CHANGELOG.md has " in prepared(copied, TAG).stderr
    assert "OWNER" in (copied / "pyproject.toml").read_text("utf-8"), "nothing was written"


def test_a_release_names_its_repository_and_leads_the_readme_there(copied, maker):
    done = prepared(copied, TAG)
    assert (done.returncode, done.stderr) == (0, "")
    made = tomllib.loads((copied / "pyproject.toml").read_text("utf-8"))["project"]
    home = "https://github.com/someone/torch-step-audit"
    assert made["urls"]["Homepage"] == home
    assert yaml.safe_load((copied / "CITATION.cff").read_text("utf-8"))["repository-code"] == home
    before, after = ((at / "README.md").read_text("utf-8") for at in (ROOT, copied))
    relative = maker.LINK.findall(before)
    assert relative and not maker.LINK.findall(after)
    for mark, _, path in relative:
        assert f"]({home}/{'raw' if mark else 'blob'}/{TAG}/{path})" in after


# -- documents -------------------------------------------------------------------------------------


def test_documents_name_the_tag_of_this_version():
    page = (ROOT / "docs/ci.md").read_text("utf-8")
    named = re.findall(r"torch-step-audit@(\S+)", page) + re.findall(r"\bre[fv]: ([^\s,]+)", page)
    assert len(named) == 3 and set(named) == {TAG}
