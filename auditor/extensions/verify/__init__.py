"""Measuring what a change bought: runs of the target before and after it, their intervals, and
whether it still computes the same.
"""
