"""What ranks save, of recordings made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from auditor.rules.dist.rank_saves import RankSaves
from auditor.rules.dist.rows import RankSaveRow

from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest
from auditor.rule import NotLooked
from auditor.runs.rank_recordings import RankedRecording


def saved(tmp_path: Path, *ranks: list[tuple[int, str, str]], world: int = 2) -> RankSaves:
    """Each rank saves (line, path, digest)."""
    for number, rows in enumerate(ranks):
        writer = RecordingWriter(tmp_path / f"rank{number}")
        for line, path, digest in rows:
            row = RankSaveRow(at=writer.site("/t.py", line, "f"), us=number + 2.0, digest=digest)
            row.path, row.bytes, row.pass_name, row.step = path, 100 * line, "loud", 0
            writer.add(row)
        writer.touch("rank_saves")
        writer.close()
        facts = {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
        more = {"rank": number, "world_size": world, "environment": {}}
        write_manifest(writer.folder, {**facts, **more})
    return Evidence(RankedRecording(tmp_path)).get(RankSaves)


def test_the_first_save_of_a_line_beside_the_other_s_first(tmp_path):
    table = saved(
        tmp_path,
        [(3, "a", "x"), (3, "a", "y"), (3, "a", "z"), (5, "c", "x"), (7, "d", "")],
        [(3, "b", "x"), (3, "b", "0"), (3, "a", "z"), (7, "d", "")],
    )
    (one,) = table.each
    assert (one.site.line, one.ranks, one.saves, one.nbytes, one.us) == (3, 2, 2, 300, 3.0)
    assert one.one_file  # the third


def test_files_of_their_own(tmp_path):
    (one,) = saved(tmp_path, [(3, "a", "x")], [(3, "b", "x")]).each
    assert not one.one_file


@pytest.mark.parametrize(("ranks", "why"), [(1, "one process"), (2, "not all ranks")])
def test_ranks_that_are_not_there(tmp_path, ranks, why):
    with pytest.raises(NotLooked, match=why):
        saved(tmp_path, *([(3, "a", "x")] for _ in range(ranks)), world=3)
