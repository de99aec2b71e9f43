"""Failures that ``make fuzz`` found, and fresh mutants: only the project's own errors get out."""

import random

import pytest

from auditor.cli import tensorboard_files
from fuzz import __main__ as harness
from fuzz import folders, mutate, readers, seeds
from fuzz.readers import read_one

CORPUS = sorted(path for path in harness.CORPUS.iterdir() if path.name != "README.md")


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_was_found_is_mended(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not harness.run([(path.name.partition("-")[0], path)])


@pytest.mark.parametrize("number", range(len(list(seeds.seeds()))))
def test_seeds_are_read(number, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kind, content = list(seeds.seeds())[number]
    suffix = (
        ".json"
        if kind == "config" and content[:1] == b"{"
        else {"config": ".yaml"}.get(kind, ".bin")
    )
    (tmp_path / f"seed{suffix}").write_bytes(content)
    read_one(kind, tmp_path / f"seed{suffix}")


def test_fresh_mutants(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance, batch = random.Random(7), []
    files = [each for each in seeds.seeds() if each[0] in ("checkpoint", "config", "snapshot")]
    for number in range(40):
        kind, content = chance.choice(files)
        path = tmp_path / f"{number}.yaml"
        path.write_bytes(mutate.mutant(chance, kind, content))
        batch.append((kind, path))
    assert not harness.run(batch)


# -- folders: a job's ranks, recordings, runs that are viewed --------------------------------------


@pytest.fixture(scope="module")
def made():
    return folders.Seeds(tuple(seeds.seeds()), seeds.recorded())


@pytest.mark.parametrize("kind", ["recording", "ranks", "ranked", "report", "view"])
def test_folders_and_fresh_mutants_of_them(made, kind, tmp_path, monkeypatch):
    """The seed itself is read without a refusal, or mutants of it would show nothing."""
    monkeypatch.chdir(tmp_path)
    chance = random.Random(3)
    batch = [(kind, made.write(chance, kind, tmp_path / f"{number}")) for number in range(8)]
    assert not harness.run(batch)
    monkeypatch.setattr(mutate, "mutant", lambda chance, kind, seed: seed)
    readers.READERS[kind](made.write(chance, kind, tmp_path / "whole"))


def test_pages_that_fail_are_noticed(made, tmp_path, monkeypatch):
    runs = made.write(random.Random(3), "view", tmp_path / "runs")
    monkeypatch.setattr(readers.Pages, "_findings", lambda pages, name: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        read_one("view", runs)
    monkeypatch.setattr(
        readers.Pages,
        "answer",
        lambda pages, route, environ, start: start("500 Oh", []) or [b'{"runs": []}'],
    )
    with pytest.raises(readers.Failed, match="is answered with 500"):
        read_one("view", runs)


@pytest.mark.parametrize(
    ("kind", "error"), [("ranks", MemoryError), ("recording", MemoryError), ("ranks", KeyError)]
)
def test_what_is_only_left_out_of_a_report_is_noticed(made, tmp_path, monkeypatch, kind, error):
    """Charts and tensorboard/ never cost a report: here their failures count."""

    def fails(*given, **named):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mutate, "mutant", lambda chance, kind, seed: seed)
    monkeypatch.setattr(tensorboard_files, "_export", fails)
    ((_, how),) = harness.run([(kind, made.write(random.Random(3), kind, tmp_path / kind))])
    assert error.__name__ in how


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(3)", "exit 3"),
        ("os.kill(os.getpid(), 11)", "signal 11"),
        ("bytes(3 << 30)", "MemoryError"),
        ("1 // 0", "ZeroDivision"),
    ],
)
def test_the_harness_notices(monkeypatch, tmp_path, code, said):
    """A harness that cannot fail is none: one of three kills its reader, the others are read."""
    (tmp_path / "x").write_text("x")
    seen = tmp_path / "seen"

    def reads(kind, path):
        if kind == "bad":
            exec(code, {"os": harness.os})
        with seen.open("a") as file:
            file.write(kind)

    monkeypatch.setattr(harness, "read_one", reads)
    failed = harness.run([("a", tmp_path / "x"), ("bad", tmp_path / "x"), ("c", tmp_path / "x")])
    assert [number for number, _ in failed] == [1] and said in failed[0][1]
    assert seen.read_text() == "ac"
