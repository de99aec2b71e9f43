"""Measuring what a change saved: runs of the target before and after it, their intervals, and
whether it still computes the same.
"""
