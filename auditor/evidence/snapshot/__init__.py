"""Tables of memory snapshots."""
