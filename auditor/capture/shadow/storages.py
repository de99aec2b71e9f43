"""Where a tensor's numbers lie: in one storage, or, if it is sparse, in those of its parts."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from auditor.capture.instruments.torch_private.tensors import stored_indices, stored_values

_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The values' storage, then those of indices; none without a plain storage."""
    for part in parts(tensor):
        yield part.untyped_storage()


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that hold the numbers: itself, or values and indices."""
    layout = tensor.layout
    if layout == torch.strided:
        return (tensor,)
    if layout == torch.sparse_coo:
        return stored_values(tensor), stored_indices(tensor)
    if layout in _COMPRESSED_ROWS:
        return tensor.values(), tensor.crow_indices(), tensor.col_indices()
    if layout in _COMPRESSED_COLUMNS:
        return tensor.values(), tensor.ccol_indices(), tensor.row_indices()
    return ()
