"""Saved checkpoints read as data: containers, tensors and numbers, never code. No torch."""
