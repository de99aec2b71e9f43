"""The folder on disk: what was flushed is readable, whatever happened after."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.recordings.folder import (
    Recording,
    RecordingWriter,
    UnreadableRecording,
    write_manifest,
)
from auditor.recordings.writer import decode_source, store_sources

MANIFEST = {"schema": "audit-recording/1", "cwd": "/w", "sources": {}}


def test_rows_come_back_and_a_cut_line_is_left_out(tmp_path):
    writer = RecordingWriter(tmp_path)
    at = writer.site("/w/a.py", 3, "f", opcode="CALL")
    assert writer.site("/w/a.py", 3, "f", opcode="CALL") == at
    writer.add_fields("reads", {"at": at, "n": 1})
    writer.touch("calls")
    writer.flush()
    writer.add_fields("reads", {"at": at, "n": 2})
    writer.close()
    with (tmp_path / "reads.jsonl").open("ab") as file:
        file.write(b'{"at": 0, "n"')
    write_manifest(tmp_path, MANIFEST)
    recording = Recording(tmp_path)
    assert [row["n"] for row in recording.rows("reads")] == [1, 2]
    assert recording.has("calls") and recording.rows("calls") == []
    assert not recording.has("backward")
    assert recording.site(at).file == "a.py"
    assert recording.site_row(99).line == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "audit-recording/9"}', '{"schema": null}']
)
def test_what_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UnreadableRecording):
        Recording(tmp_path)


def test_sources_are_kept_as_they_were_and_never_read_outside(tmp_path):
    user = tmp_path / "proj" / "a.py"
    user.parent.mkdir()
    user.write_bytes("x = 'é'\r\n".encode("latin-1"))
    folder = tmp_path / "rec"
    stored = store_sources(folder, str(user.parent), iter([str(user), "/nowhere.py"]))
    write_manifest(
        folder,
        {**MANIFEST, "cwd": str(user.parent), "sources": {**stored, "evil.py": "../../secret"}},
    )
    user.write_text("changed\n")
    recording = Recording(folder)
    assert recording.source_bytes(str(user)) == "x = 'é'\r\n".encode("latin-1")
    assert recording.site_at(str(user), 1).text.startswith("x = ")
    assert recording.source_bytes("evil.py") is None


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_lines(raw):
    assert "\r" not in decode_source(raw)
