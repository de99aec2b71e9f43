"""Writes the allocator's state and history in the schema of ``torch.cuda.memory._snapshot()``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from auditor.allocator.blocks import Block
from auditor.allocator.ledger import Entry
from auditor.allocator.settings import INTERVALS, AllocatorSettings


def snapshot_of(
    blocks: Iterable[Block], history: Iterable[Entry], settings: AllocatorSettings, device: int
) -> dict[str, Any]:
    """The snapshot of one device; the histories of devices before it are empty lists, as in
    torch's.
    """
    heads = [block for block in blocks if block.previous is None or not block.previous.mapped]
    return {
        "segments": [
            _segment(head, device) for head in sorted(heads, key=lambda block: block.address)
        ],
        "device_traces": [*([] for _ in range(device)), [entry.row() for entry in history]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": settings.text,
            "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
            "garbage_collection_threshold": settings.garbage_collection_threshold,
            "expandable_segments": settings.expandable_segments,
            "roundup_power2_divisions": {
                str(1 << n): settings.roundup_power2_divisions[n] for n in range(INTERVALS)
            },
        },
        "external_annotations": [],
    }


def _segment(head: Block, device: int) -> dict[str, Any]:
    """A segment; of an expandable one, a stretch without gaps."""
    blocks: list[Block] = []
    block: Block | None = head
    while block is not None and block.mapped:
        blocks.append(block)
        block = block.next
    return {
        "device": device,
        "address": head.address,
        "total_size": sum(each.size for each in blocks),
        "allocated_size": sum(each.size for each in blocks if each.state == "active_allocated"),
        "active_size": sum(each.size for each in blocks if not each.is_free),
        "requested_size": sum(each.requested for each in blocks),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": head.reach is not None,
        "frames": list(head.segment_frames),
        "blocks": [_block(each) for each in blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": block.state,
        "frames": list(block.frames),
    }
