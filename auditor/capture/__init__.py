"""Capture: the only room that imports torch. It runs the user's step and writes a recording."""
