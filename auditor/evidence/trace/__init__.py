"""Tables of profiler traces."""
