"""Compiled templates are kept as Python keeps bytecode, and never outlive what they were made of."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from reports.template_bytecode import TemplateBytecode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "page.j2").write_text("<b>{{ name }}</b>")
    return tmp_path


def environment(folder: Path, **options: object) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        bytecode_cache=TemplateBytecode(),
        **{"autoescape": True, **options},  # type: ignore[arg-type]
    )


def said(folder: Path, **options: object) -> str:
    return environment(folder, **options).get_template("page.j2").render(name="<i>")


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("*"))


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(jinja2.Environment, "compile", compiled)


def test_a_template_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(folder) == "<b>&lt;i&gt;</b>"
    assert len(kept(folder)) == 1
    without_compiler(monkeypatch)
    assert said(folder) == "<b>&lt;i&gt;</b>"


def test_another_source_is_compiled_again(folder: Path) -> None:
    said(folder)
    (folder / "page.j2").write_text("<u>{{ name }}</u>")
    assert said(folder) == "<u>&lt;i&gt;</u>"
    assert len(kept(folder)) == 1


def test_an_environment_that_escapes_does_not_read_what_one_made_that_does_not(
    folder: Path,
) -> None:
    assert said(folder, autoescape=False) == "<b><i></b>"
    assert said(folder) == "<b>&lt;i&gt;</b>"
    assert said(folder, finalize=lambda value: "x") == "<b>x</b>"


@pytest.mark.parametrize("damage", [b"", b"x" * 10, b"\0" * 400])
def test_a_damaged_file_is_no_error(folder: Path, damage: bytes) -> None:
    said(folder)
    whole = kept(folder)[0].read_bytes()
    for content in (damage, whole[:32] + damage, whole[:-20]):
        kept(folder)[0].write_bytes(content)
        assert said(folder) == "<b>&lt;i&gt;</b>"


def test_nothing_is_written_where_python_writes_no_bytecode(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert said(folder) == "<b>&lt;i&gt;</b>"
    assert not kept(folder)


def test_bytecode_goes_where_python_was_told_to_put_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("bytecode")
    monkeypatch.setattr(sys, "pycache_prefix", str(elsewhere))
    said(folder)
    assert not kept(folder)
    assert [path.name for path in elsewhere.rglob("page.j2*")]


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file where the folder would be")
    assert said(folder) == "<b>&lt;i&gt;</b>"
