"""Measuring what a change saved: runs before and after it, intervals, and whether results agree."""
