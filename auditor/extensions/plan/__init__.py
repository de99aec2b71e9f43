"""What fits: re-runs with one thing changed, and what they say of memory (docs/plan.md)."""
