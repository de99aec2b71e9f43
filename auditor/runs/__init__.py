"""Runs of the user's target: the plan, the child that records, further runs and all ranks."""
