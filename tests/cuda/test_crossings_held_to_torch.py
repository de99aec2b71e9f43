"""Where a rehearsal says that the host waits, torch's own CUDA code does, and nowhere else."""

import pytest

from tests.cuda.explained import EXPLAINED, UNWARNED, VERSIONS
from tests.cuda.held_to_torch import (
    CORPUS,
    SNIPPETS,
    TORCH,
    compared,
    construct_rows,
    documented,
    program_compared,
    programs,
    quiet,
)

PROGRAMS = {name: (folder, target) for name, folder, target in programs()}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return compared(list(SNIPPETS), tmp_path_factory.mktemp("waits"))


def test_what_differs_is_explained(found):
    assert [
        (one.piece, one.rows, one.ended)
        for one in found
        if one.verdict != "agree" and one.piece not in EXPLAINED
    ] == []


def test_a_rehearsal_names_no_line_where_torch_does_not_wait(found):
    """But for what zeros kept from its line, and the program's own function mode."""
    invented = {one.piece for one in found for row in one.rows if row.told and not row.waits}
    assert invented <= {"zoo/function_mode"}


def test_explanations_are_of_what_differs(found):
    differing = {one.piece for one in found if one.verdict != "agree"}
    assert {
        piece for piece in EXPLAINED if piece.partition("/")[0] in SNIPPETS
    } - differing == set()


def test_constructs_are_many_and_most_agree(found):
    constructs = [one for one in found if one.piece.startswith("constructs/")]
    agreeing = sum(one.verdict == "agree" for one in constructs)
    assert len(constructs) >= 130
    assert agreeing >= 0.9 * len(constructs)
    assert sum(bool(one.rows) for one in constructs) >= 75


def test_torch_warns_of_all_waits_but_these(found):
    silent = {one.piece for one in found for row in one.rows if row.waits > row.warnings}
    assert silent == set(UNWARNED)


def test_no_warning_without_a_call_that_blocked(found):
    assert [row for one in found for row in one.rows if row.warnings > row.waits] == []


@pytest.mark.skipif(TORCH != (2, 14), reason="docs/log/gpu-facts.md has the table of torch 2.14")
def test_the_page_has_the_table(found):
    page = documented()
    assert [row for row in construct_rows(found) if row not in page] == []
    words = " ".join(page)
    assert [
        name for name in quiet(found) if f" {name}," not in words and f" {name}." not in words
    ] == []
    assert set(VERSIONS) <= {one.piece.partition("/")[2] for one in found}


def test_examples_and_corpus_are_found():
    assert sum(name.startswith("examples/") for name in PROGRAMS) >= 12
    assert not CORPUS.is_dir() or any(name.startswith("corpus/") for name in PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    one = program_compared(name, *PROGRAMS[name])
    assert one.ended == (None, None)
    assert one.rows
    assert one.verdict == "agree" or one.piece in EXPLAINED, one.rows
