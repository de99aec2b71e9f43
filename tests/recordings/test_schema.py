"""The types of a recording's rows, the page that is written from them, and rows of another
shape.
"""

from pathlib import Path

import msgspec
import pytest

from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.row import Item, PassRow, Row
from auditor.recordings.schema import PARTS, ROWS
from auditor.recordings.schema.__main__ import markdown
from auditor.recordings.schema.data import BatchRow
from auditor.recordings.schema.run import SiteRow, StepRow, known
from auditor.recordings.schema.sync import ReadRow
from auditor.recordings.writer import encoded

ROOT = Path(__file__).resolve().parent.parent.parent
READ = '{"pass": "loud", "step": 0, "at": 0, "kind": "item", "n": 1}'


def all_of(base: type) -> set[type]:
    own = (
        one
        for one in base.__subclasses__()
        if one.__module__.startswith("auditor.") and not one.__struct_config__.forbid_unknown_fields
    )
    return {each for one in own for each in {one, *all_of(one)}}


@pytest.fixture
def recording(tmp_path):
    write_manifest(tmp_path, {"schema": SCHEMA})
    return Recording(tmp_path)


def test_the_page_is_what_the_types_say():
    assert (ROOT / "docs" / "recording.md").read_text("utf-8") == markdown()


def test_every_type_of_row_is_listed_and_its_fields_are_described():
    bases = {PassRow, *(each for each in all_of(Row) if all_of(each))}
    assert all_of(Row) - bases == set(ROWS)
    for struct in (*ROWS, *all_of(Item)):
        assert struct.__doc__
        for field in msgspec.structs.fields(struct):
            described = msgspec.inspect.type_info(field.type)
            assert (
                isinstance(described, msgspec.inspect.Metadata)
                and described.extra_json_schema["description"]
            ), field.name


@pytest.mark.parametrize("part", PARTS)
def test_rows_of_one_part_are_told_apart(part):
    tags = [row.__struct_config__.tag for row in PARTS[part]]
    assert len(set(tags)) == len(tags)
    msgspec.json.Decoder(PARTS[part][0])


def test_a_row_of_another_shape_is_left_out_and_told(recording):
    lines = [
        READ,
        READ.replace('"n": 1', '"n": "many"'),
        READ.replace('"pass"', '"past"'),
        READ.replace("1}", '2, "later": []}'),
    ]
    (recording.folder / "reads.jsonl").write_text("\n".join([*lines, '{"pass": "lo']))
    assert recording.unreadable("reads") == ""
    assert [row.n for row in recording.rows(ReadRow)] == [1, 2]
    assert recording.unreadable("reads").startswith(
        "line 2 of reads.jsonl "
    ) and "`$.n`" in recording.unreadable("reads")
    assert [row["n"] for row in recording.rows("reads")] == [1, "many", 1, 2]


@pytest.mark.parametrize("missing", ["pass", "step"])
def test_a_row_without_pass_or_step_is_left_out(recording, missing):
    (recording.folder / "steps.jsonl").write_text(
        '{"pass": "quiet", "step": 0, "us": 1.0}'.replace(f'"{missing}"', '"no"')
    )
    assert recording.rows(StepRow) == []
    assert "`pass` or `step`" in recording.unreadable("steps")


def test_a_recording_of_a_version_that_knew_less_is_read(recording):
    (recording.folder / "steps.jsonl").write_text('{"pass": "quiet", "step": 0, "us": 1.0}\n')
    (recording.folder / "batches.jsonl").write_text('{"pass": "quiet", "step": 0, "loader": 0}\n')
    (step,), (batch,) = recording.rows(StepRow), recording.rows(BatchRow)
    held = known(step.rss), known(step.allocated)
    assert (step.us, *held, batch.wait_us, batch.devices) == (1.0, None, None, 0.0, None)


def test_names_that_no_encoding_takes_are_written_as_escapes(tmp_path):
    class Name(str):
        __slots__ = ()

    row = SiteRow(id=0, file="/caf\udce9/x.py", line=1, function=Name("f"))
    told = msgspec.json.decode(encoded(row, lambda text: text.replace("/caf", "/tea")))
    assert (told["file"], told["function"]) == ("/tea\\udce9/x.py", "f")
