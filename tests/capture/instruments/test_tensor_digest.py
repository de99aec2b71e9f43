"""Tensors of every kind have a digest, and none raises into the program that is drilled."""

import pytest
import torch

from auditor.capture.instruments.plain_tensor import digest, finite

KINDS = {
    "float": torch.ones(3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "float8": torch.ones(3).to(torch.float8_e4m3fn),
    "bool": torch.ones(3, dtype=torch.bool),
    "complex": torch.ones(3, dtype=torch.complex64),
    "empty": torch.ones(0, 3),
    "sparse": torch.eye(3).to_sparse(),
    "rows": torch.eye(3).to_sparse_csr(),
    "meta": torch.ones(3, device="meta"),
    "ragged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_digest_and_is_finite(kind):
    assert len(digest([KINDS[kind]])) == 16
    assert finite(KINDS[kind])


def test_values_shapes_and_dtypes_are_told_apart():
    ones = torch.ones(2, 3)
    others = [
        ones.view(3, 2),
        ones.double(),
        ones.int(),
        ones.clone().index_fill_(0, torch.tensor([1]), 1 + 2**-20),
    ]
    assert len({digest([each]) for each in (ones, *others)}) == 5
    assert digest([ones]) == digest([ones.clone()])
    assert not finite(torch.tensor([1.0, float("nan")]))
