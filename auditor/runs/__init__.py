"""Runs of the user's target: what is asked for, the child process that records it, further runs and
all ranks.
"""
