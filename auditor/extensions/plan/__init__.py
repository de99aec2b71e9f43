"""What fits: re-runs of a program with one thing changed, and what they say of memory
(docs/plan.md).
"""
