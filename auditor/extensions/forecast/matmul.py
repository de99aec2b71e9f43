"""Time of matrix products: six numbers a GPU, over tiles that come in whole waves.

A library cuts the result into tiles, one processor a tile; the last wave of tiles may be nearly
empty. Beside the products stand the bytes, and the longer of both decides, with a soft corner. The
library picks the best tile and may split the depth; so does the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_TILES = ((128, 256), (128, 128), (64, 128), (64, 64), (32, 64))
_LARGEST = 128 * 256
_SPLITS = (1, 2, 4, 8)
_SPLIT_US = 1.0
"""What adding up the parts of a split depth costs beside its bytes."""
_CORNER = 4.0
_IN_L2 = 0.5
"""Share of the L2 below which inputs and result may lie in it."""


@dataclass(frozen=True)
class MatmulNumbers:
    """The six numbers."""

    floor_us: float
    """A kernel that does next to nothing."""
    compute: float
    """Share of the peak FLOP/s that the largest tile reaches."""
    memory: float
    """Share of the bandwidth."""
    ramp: float
    """Depth that starting and ending a tile costs as much as."""
    l2_gain: float
    """How much faster bytes come where all of them fit into the L2."""
    tile_penalty: float
    """What a tile half as large loses, times 4."""


@dataclass(frozen=True)
class Products:
    """Matrix products as columns, with what their GPU's sheet says."""

    batch: Floats
    rows: Floats
    columns: Floats
    depth: Floats
    bytes: Floats
    peak: Floats
    """FLOP/us"""
    bandwidth: Floats
    """Bytes/us"""
    l2_bytes: Floats
    processors: Floats
    item_bytes: Floats


def aligned(products: Products) -> NDArray[np.bool_]:
    """Whether rows of 16-bit factors end at 16 bytes: else libraries leave their fast kernels."""
    even = (products.depth % 8 == 0) & (products.columns % 8 == 0)
    narrow = (products.depth <= 8) | (products.columns <= 8)
    told: NDArray[np.bool_] = even | narrow | (products.item_bytes != 2)
    return told


def matmul_us(numbers: MatmulNumbers, products: Products, unaligned: float = 1.0) -> Floats:
    """Times in us, the data sheet's bound left aside. ``unaligned`` is how much longer products
    take whose rows are not aligned.
    """
    best: Floats | None = None
    for tile in _TILES:
        for split in _SPLITS:
            found = _tiled(numbers, products, tile, split)
            best = found if best is None else np.minimum(best, found)
    assert best is not None
    rate = products.bandwidth * numbers.memory
    gain = np.where(products.bytes < products.l2_bytes * _IN_L2, max(numbers.l2_gain, 1.0), 1.0)
    memory = products.bytes / (rate * gain)
    soft: Floats = (best**_CORNER + memory**_CORNER) ** (1 / _CORNER)
    slower = np.where(aligned(products), 1.0, unaligned)
    return numbers.floor_us + soft * slower


def _tiled(numbers: MatmulNumbers, products: Products, tile: tuple[int, int], split: int) -> Floats:
    """With one tile and the depth split into so many parts."""
    high, wide = tile
    tiles = products.batch * np.ceil(products.rows / high) * np.ceil(products.columns / wide)
    waves = np.ceil(tiles * split / products.processors)
    halvings = np.log2(_LARGEST / (high * wide))
    penalty = 1 + numbers.tile_penalty * halvings / 4
    work = 2.0 * high * wide * (products.depth / split + numbers.ramp) * products.processors
    found: Floats = waves * work / (products.peak * numbers.compute) * penalty
    if split == 1:
        return found
    parts = 2.0 * split * products.batch * products.rows * products.columns * 4
    return found + _SPLIT_US + parts / products.bandwidth
