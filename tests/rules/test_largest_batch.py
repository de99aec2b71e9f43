"""MEM018: the batch that is made ahead of its turn, and from where its peak is reported."""

import random

import numpy as np
import pytest
import torch
from auditor.rules.mem.peaks import LargestBatchDoesNotFit
from auditor.rules.mem.rows import LeanerRow
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from auditor.capture.probes.data.dataloader_facts import largest_batch, nbytes_of
from auditor.model import Site
from tests.rules.asking import ask, rows

HERE = Site("train.py", 7, "", "")


class Noisy:
    """Draws from all generators for each sample."""

    lengths = [5] * 90 + [50] + [6] * 9

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, number):
        random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
        return torch.ones(self.lengths[number])


def padded(samples):
    return pad_sequence(samples, batch_first=True)


def states(generator):
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    return (
        torch.get_rng_state().tolist(),
        generator.get_state().tolist(),
        random.getstate(),
        numpy_state,
    )


def test_the_longest_is_in_it_and_nothing_is_drawn_from_the_program():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Noisy(), 4, shuffle=True, collate_fn=padded, generator=generator)
    iterator = iter(loader)
    next(iterator)
    before = states(generator)
    found = largest_batch(iterator)
    assert found.batch.shape == (4, 50) and found.of == 25
    assert found.nbytes == nbytes_of(found.batch) == 800
    assert states(generator) == before


@pytest.mark.parametrize(
    ("largest", "usual", "found"),
    [(1030, 500, True), (1029, 500, False), (1030, 1000, True), (1030, 1001, False)],
    ids=["beyond", "within 3 %", "the others just fit", "the others do not fit either"],
)
def test_from_where_it_is_reported(largest, usual, found):
    usual_row = LeanerRow(at=None, what="", changed=0, peak_allocated=usual, pass_name="leaner")
    row = LeanerRow(
        at=0, what="largest", changed=25, peak_allocated=largest, capacity=1000, pass_name="leaner"
    )
    given = rows(usual_row, row, sites=(HERE,))
    findings = list(ask(LargestBatchDoesNotFit(), given))
    assert [each.site for each in findings] == [HERE] * found
    assert all(each.lost_bytes is None for each in findings)  # nothing would come back
    silent = rows(usual_row, LeanerRow(at=0, what="foreach", changed=25, peak_allocated=largest))
    assert not list(ask(LargestBatchDoesNotFit(), silent))
