"""Random programs for the allocator, and what must hold of it after each step."""

from collections import defaultdict

from hypothesis import strategies as st

from auditor.allocator import AllocatorSettings, CachingAllocator

MIB = 1 << 20
CONFIGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:20,max_non_split_rounding_mb:24",
    "roundup_power2_divisions:4",
    "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:[1:2,32:8,>:1]",
    "large_segment_size_mb:32",
)

RANGES = (0, 4096), (1, 2 * MIB), (MIB - 600, MIB + 600), (MIB, 12 * MIB), (9 * MIB, 60 * MIB)
sizes = st.one_of(*(st.integers(*bounds) for bounds in RANGES))
FREES = ("free", "free", "free_begins", "free_ends")
steps = st.one_of(
    st.tuples(st.just("malloc"), sizes, st.integers(0, 2)),
    st.tuples(st.just("malloc"), sizes, st.just(0)),
    *(st.tuples(st.just(name), st.integers(0, 200), st.just(0)) for name in FREES),
    st.tuples(st.just("empty_cache"), st.just(0), st.just(0)),
)
programs = st.lists(steps, min_size=25, max_size=150)  # hypothesis stays near the least
cards = st.sampled_from([64 * MIB, 120 * MIB, 4096 * MIB])


def states(snapshot):
    """Bytes and number of the blocks in each state, by pool."""
    found = defaultdict(lambda: [0, 0, 0])
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            for pool in (segment["segment_type"], "all"):
                row = found[pool, block["state"]]
                row[0] += 1
                row[1] += block["size"]
                row[2] += block["requested_size"]
    return found


def check(allocator):
    """Blocks tile their segments, nothing overlaps, the books agree, no memory is invented."""
    snapshot, stats = allocator.snapshot(), allocator.stats()
    end = 0
    for segment in snapshot["segments"]:
        assert segment["address"] >= end
        end = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == end
            assert block["size"] >= 512 and block["size"] >= block["requested_size"]
            end += block["size"]
        assert end - segment["address"] == segment["total_size"]
        idle = [block["state"] == "inactive" for block in segment["blocks"]]
        joined = not any(left and right for left, right in zip(idle, idle[1:]))
        assert joined, "two free neighbours were not joined"
    found = states(snapshot)
    for key, pool in (("all", "all"), ("small_pool", "small"), ("large_pool", "large")):
        held, waiting = found[pool, "active_allocated"], found[pool, "active_pending_free"]
        own = [each for each in snapshot["segments"] if pool in ("all", each["segment_type"])]
        cut = [each for each in own if not each["is_expandable"] and len(each["blocks"]) > 1]
        blocks = [block for each in cut for block in each["blocks"]]
        split = [block["size"] for block in blocks if block["state"] == "inactive"]
        expected = {
            "reserved_bytes": sum(each["total_size"] for each in own),
            "segment": sum(not each["is_expandable"] for each in own),
            "allocation": held[0],
            "allocated_bytes": held[1],
            "active": held[0] + waiting[0],
            "active_bytes": held[1] + waiting[1],
            "requested_bytes": held[2] + waiting[2],
            "inactive_split": len(split),
            "inactive_split_bytes": sum(split),
        }
        for name, value in expected.items():
            assert stats[f"{name}.{key}.current"] == value, name
            assert stats[f"{name}.{key}.peak"] >= value, name
            assert stats[f"{name}.{key}.allocated"] - stats[f"{name}.{key}.freed"] == value, name
    assert stats["reserved_bytes.all.current"] + allocator.device_free == allocator.total_bytes


class Walk:
    """Runs a program, one step after another; requests that find no memory are left out."""

    def __init__(self, config, card, **options):
        self.allocator = CachingAllocator(card, settings=AllocatorSettings.parse(config), **options)
        self.live: list[int] = []
        self.pending: list[int] = []
        self.now = 0

    def step(self, action, number, stream):
        allocator, self.now = self.allocator, self.now + 1
        address = self.live[number % len(self.live)] if self.live else 0
        if action == "malloc":
            frame = {"filename": "a.py", "line": self.now, "name": "step"}
            found = allocator.malloc(number, stream, (frame,), self.now)
            self.live += [found] if found else []
        elif action == "free" and address:
            self.live.remove(address)
            allocator.free(address, self.now)
        elif action == "free_begins" and address:
            self.live.remove(address)
            self.pending.append(address)
            allocator.free(address, self.now, pending=True)
        elif action == "free_ends" and self.pending:
            allocator.complete_free(self.pending.pop(number % len(self.pending)), self.now)
        elif action == "empty_cache":
            allocator.empty_cache(self.now)


def gained(snapshot):
    """Sizes of the memory that the device was asked for, in turn."""
    asked = ("segment_alloc", "segment_map")
    return [each["size"] for each in snapshot["device_traces"][0] if each["action"] in asked]
