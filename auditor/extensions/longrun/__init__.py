"""Long runs (docs/watch.md): full instruments for a few steps, every N steps."""
