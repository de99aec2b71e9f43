"""Saved checkpoints read as data: containers, tensors and numbers, and never any code of theirs. No
torch here.
"""
