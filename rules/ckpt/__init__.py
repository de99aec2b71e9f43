"""Saving, loading and checkpoints on disk."""
