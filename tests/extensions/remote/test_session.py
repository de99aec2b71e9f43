"""What another machine may answer, what it is sent, and how words reach its shell."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import click
import pytest

from auditor import __version__
from auditor.cli.main import main
from auditor.cli.usage import GIVEN
from auditor.errors import AuditProblem
from auditor.extensions.remote import command, project, session
from auditor.extensions.remote.session import Host, Session, host_named
from auditor.model import Site
from auditor.model.verification import Proposal, Verification, Verified
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from tests.extensions.remote.machines import script
from tests.reports.golden_report import rich_report

# -- what comes back -------------------------------------------------------------------------------


END = bytes(1024)


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", size: int = 1) -> bytes:
    """One entry of an archive, which :data:`END` ends."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    info.size = size if kind == tarfile.REGTYPE else 0
    return info.tobuf() + b"x" * info.size + bytes(-info.size % 512)


def answering(tmp_path: Path, archive: bytes, ready: str = f"ready {__version__} /x") -> Session:
    """A session with a machine that says this and sends this."""
    (tmp_path / "archive").write_bytes(archive)
    script(
        tmp_path / "host",
        f"""\
        mark=${{3#mark=}}; mark=${{mark%% *}}
        printf 'noise\\n%s {ready}\\n' "$mark"
        printf '\\n%s ended 0\\n' "$mark"
        cat {tmp_path}/archive""",
    )
    return Session(Host("gpu1", (str(tmp_path / "host"),)), "", "run", "project/p", "out/recording")


def received(tmp_path: Path, archive: bytes) -> set[str]:
    """What of an archive is kept, by names below the folder of the test."""
    place = tmp_path / "place" / "in"
    place.mkdir(parents=True)
    with answering(tmp_path, archive) as there:
        assert there.home() == "/x"
        assert there.wait() == 0
        there.receive(place)
    return {str(each.relative_to(place)) for each in place.rglob("*")}


def test_files_and_folders_of_a_recording_are_kept(tmp_path: Path) -> None:
    archive = member("out/recording", tarfile.DIRTYPE) + member("out/recording/a/b.jsonl")
    kept = received(tmp_path, archive + END)
    assert kept == {"out", "out/recording", "out/recording/a", "out/recording/a/b.jsonl"}
    mode = (tmp_path / "place/in/out/recording/a/b.jsonl").stat().st_mode
    assert not mode & 0o111


def test_nothing_is_kept_of_nothing(tmp_path: Path) -> None:
    assert received(tmp_path, b"") == set()


OTHERS = {
    "up": member("out/recording/../../../escaped"),
    "up at once": member("../escaped"),
    "absolute": member("/tmp/escaped"),
    "not asked for": member("out/report.html"),
    "beside": member("out/recordings/x"),
    "a link": member("out/recording/x", tarfile.SYMTYPE, link="/etc/passwd"),
    "a link up": member("out/recording/x", tarfile.SYMTYPE, link="../../.."),
    "a hard link": member("out/recording/x", tarfile.LNKTYPE, link="/etc/passwd"),
    "a pipe": member("out/recording/x", tarfile.FIFOTYPE),
    "a device": member("out/recording/x", tarfile.CHRTYPE),
    "with holes": member("out/recording/x", tarfile.GNUTYPE_SPARSE),
}


@pytest.mark.parametrize("what", OTHERS)
def test_anything_else_is_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(AuditProblem, match="no audit writes"):
        received(tmp_path, OTHERS[what] + END)
    assert {each.name for each in (tmp_path / "place").rglob("*")} == {"in"}


def test_a_link_and_a_file_through_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    link = member("out/recording/x", tarfile.SYMTYPE, link=str(outside))
    with pytest.raises(AuditProblem, match="no audit writes"):
        received(tmp_path, link + member("out/recording/x/y") + END)
    assert not any(outside.iterdir())


def test_a_file_that_comes_twice(tmp_path: Path) -> None:
    with pytest.raises(AuditProblem, match="cannot be kept"):
        received(tmp_path, member("out/recording/x") * 2 + END)


@pytest.mark.parametrize(("size", "fits"), [(20_000, True), (40_000, False)])
def test_its_size_has_a_bound(
    size: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "RETURNED_LIMIT", 30_000)
    archive = member("out/recording/x", size=size) + END
    if fits:
        assert "out/recording/x" in received(tmp_path, archive)
    else:
        with pytest.raises(AuditProblem, match="it is more than"):
            received(tmp_path, archive)


@pytest.mark.parametrize("cut", [100, 700, 1500])
def test_an_archive_that_was_cut_off(cut: int, tmp_path: Path) -> None:
    with pytest.raises(AuditProblem, match="damaged"):
        received(tmp_path, member("out/recording/x", size=9999)[:cut])


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(AuditProblem, match="damaged"):
        received(tmp_path, b"no archive" * 200)


@pytest.mark.parametrize(
    ("version", "agrees"),
    [(__version__, True), (".".join((*__version__.split(".")[:2], "99")), True), ("9.9.0", False)],
)
def test_versions_agree(version: str, agrees: bool, tmp_path: Path) -> None:
    with answering(tmp_path, b"", f"ready {version} /a b") as there:
        if agrees:
            assert there.home() == "/a b"
        else:
            with pytest.raises(AuditProblem, match=r"9\.9\.0"):
                there.home()


# -- what is sent ----------------------------------------------------------------------------------


def test_what_of_a_project_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "project"
    for name in ("train.py", "data/small.txt", ".git/config", "venv/pyvenv.cfg", "mlruns/log"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("text")
    for size in (2, 3, 4):
        (home / f"{size}.bin").write_bytes(bytes(size << 20))
    (tmp_path / "elsewhere").mkdir()
    (home / "linked").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(project, "TREE_LIMIT", 6 << 20)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        left_out = project.pack(archive, home, "project/p")
        members = {each.name: each for each in archive.getmembers()}
    assert sorted(left_out) == ["4.bin", "linked"]
    assert {name for name, each in members.items() if each.isreg()} == {
        f"project/p/{name}" for name in ("train.py", "data/small.txt", "2.bin", "3.bin")
    }
    assert {(each.uid, each.uname) for each in members.values()} == {(0, "")}
    assert not any(each.issym() for each in members.values())


@pytest.mark.parametrize(
    ("word", "there"),
    [
        ("a b;touch x", "a b;touch x"),
        ("$(touch x)'\"`", "$(touch x)'\"`"),
        ("/my project/a b", "/there it is/a b"),
        ("--config=/my project", "--config=/there it is"),
        ("--config=/my project/$x", "--config=/there it is/$x"),
        ("/my projects/a", "/my projects/a"),
        ("", ""),
    ],
)
def test_words_reach_the_shell_there_as_they_are(word: str, there: str) -> None:
    quoted = project.word_there(word, "/my project")
    done = subprocess.run(
        ["sh", "-c", f"here='/there it is'; printf '<%s>' {quoted}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"<{there}>"


def test_the_command_line_goes_there_without_what_is_for_here() -> None:
    given = [
        *("-m", "--on", "gpu1", "--steps=3", "--select", "OPT", "--fail-on", "error", "--quiet"),
        *("--format", "json", "--out=x", "--verify", "pkg.train", "--", "--on", "b", "--", "--c"),
    ]
    run = main.commands["run"]
    context = click.Context(run, info_name="run")
    run.parse_args(context, list(given))
    assert context.meta[GIVEN] == given
    assert command._passed_on(context, given) == [
        *("-m", "--steps=3", "--select=OPT", "--quiet", "--", "pkg.train"),
        *("--on", "b", "--", "--c"),
    ]


def test_a_recording_moves_with_the_project(tmp_path: Path) -> None:
    """Rows keep the paths of the machine that wrote them, and are of the project all the same."""
    manifest = {
        "schema": SCHEMA,
        "cwd": "/there/my p",
        "argv": ["--x=/there/my p/y"],
        "environment": {"torch": "2"},
    }
    write_manifest(tmp_path / "rank0", manifest)
    project.move(tmp_path, "/there/my p", "/here", "gpu1")
    here = Recording(tmp_path / "rank0")
    assert here.manifest["environment"] == {"torch": "2", "recorded on": "gpu1"}
    assert here.manifest["argv"] == ["--x=/here/y"]
    project.move(tmp_path, "/here", "/third")
    for recording in (here, Recording(tmp_path / "rank0")):
        for file in ("/there/my p/a/b.py", f"{recording.cwd}/a/b.py"):
            assert recording.relative(file) == "a/b.py"
        assert recording.relative("/there/my project/b.py") == "/there/my project/b.py"
    assert recording.cwd == "/third"


# -- hosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "", " ", "a\nb", "a\x1bb", "srun:'"])
def test_words_that_name_no_host(text: str) -> None:
    with pytest.raises(AuditProblem, match="--on"):
        host_named(text)


def test_the_command_has_to_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuditProblem, match="needs ssh"):
        host_named("gpu1")
    with pytest.raises(AuditProblem, match="needs srun"):
        host_named("srun")
    script(tmp_path / "ssh", "true")
    assert host_named("user@gpu1").prefix[-2:] == ("--", "user@gpu1")


# -- what was measured there -----------------------------------------------------------------------


def test_results_come_without_patches_and_only_for_the_same_report() -> None:
    verified = Verified("inconclusive", None, None, None, None, None)
    mine = replace(rich_report(), verification=None)
    proposal = Proposal("title", "text", (), verified, "--- a/x\n+++ b/x\n")
    measured = Verification(verified, (), None, True, 3, 5, 1.0, proposals=(proposal,))
    theirs = replace(
        mine,
        findings=tuple(replace(each, verified=verified) for each in mine.findings),
        verification=measured,
    )
    host = Host("gpu1", ())
    joined = command._with_results(mine, theirs, host)
    assert {each.verified for each in joined.findings} == {verified}
    assert [each.remedy for each in joined.findings] == [each.remedy for each in mine.findings]
    assert joined.verification is not None
    assert [(each.text, each.diff) for each in joined.verification.proposals] == [("text", "")]
    moved = replace(theirs.findings[0], site=Site("other.py", 1))
    for other in (theirs.findings[1:], (moved, *theirs.findings[1:])):
        with pytest.raises(AuditProblem, match="another report"):
            command._with_results(mine, replace(theirs, findings=other), host)
