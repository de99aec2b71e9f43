"""Configuration files of a target: which are kept, and which value reached a call."""

import os
import sys

import pytest

from auditor.capture.process import OpenedConfigs
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.writer import store_sources
from auditor.syntax.config_files import MOST_BYTES, worth_keeping


def recording_of(folder, files: dict[str, str]) -> Recording:
    cwd = folder / "project"
    cwd.mkdir()
    for name, text in files.items():
        (cwd / name).write_text(text)
    kept, _ = worth_keeping([str(cwd / name) for name in files], str(cwd))
    sources = store_sources(folder, str(cwd), iter(kept))
    write_manifest(folder, {"schema": SCHEMA, "cwd": str(cwd), "sources": sources, "configs": kept})
    return Recording(folder)


def test_lines_that_set_the_allocator(tmp_path):
    recording = recording_of(
        tmp_path, {"run.sh": "cd x\nexport PYTORCH_CUDA_ALLOC_CONF=a:1\n", "c.yaml": "a: 1\n"}
    )
    (line,) = Evidence(recording).get(Configs).allocator
    assert str(line.site) == "run.sh:2"
    assert Evidence(recording).get(Source).texts == {}


@pytest.mark.parametrize(
    "secret",
    [
        "WANDB_API_KEY=1",
        "HF_TOKEN=x",
        "password: x",
        "aws:\n  secret: 1",
        "token: x",
        "store: postgres://me:open@db/runs",
        "slack_webhook: x",
        "hub: hf_abcdefghijklmnop",
    ],
)
def test_no_file_with_a_secret_is_kept(tmp_path, secret):
    for name in ("c.yaml", ".env"):
        (tmp_path / name).write_text(f"num_workers: 0\n{secret}\n")
    both = [str(tmp_path / "c.yaml"), str(tmp_path / ".env")]
    assert worth_keeping(both, str(tmp_path)) == ([], both)


def test_what_else_is_not_kept(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside.yaml"
    inside.mkdir()
    outside.write_text("a: 1")
    (inside / "link.yaml").symlink_to(outside)
    (inside / "large.json").write_text("1" * (MOST_BYTES + 1))
    (inside / "binary.yaml").write_bytes(b"\xff\xfe")
    (inside / "words.yaml").write_text(
        "eos_token: '</s>'\ntokenizer: gpt2\nmax_tokens: 3\ndata: s3://bucket/x@2:3\nsk-ip: 1\n"
    )
    files = [str(path) for path in [*sorted(inside.iterdir()), outside, inside / "gone.yaml"]]
    assert [os.path.basename(file) for file in worth_keeping(files, str(inside))[0]] == [
        "words.yaml"
    ]


def test_an_event_of_somebody_elses_is_passed_over():
    watch = OpenedConfigs()
    watch.start()
    sys.audit("open")
    sys.audit("open", "c.yaml")
    assert watch.files == []
    watch.stop()


def test_files_opened_for_reading_are_noted(tmp_path):
    config, other, later = tmp_path / "c.yaml", tmp_path / "o.json", tmp_path / "l.toml"
    watch = OpenedConfigs()
    watch.start()
    other.write_text("{}")
    with other.open("r+"):
        pass
    config.touch()
    config.read_bytes()
    assert config.read_text() == ""
    os.close(os.open(tmp_path, os.O_RDONLY))
    with pytest.raises(FileNotFoundError):
        later.read_text()
    watch.stop()
    other.read_text()
    assert watch.files == [str(config), str(later)]
