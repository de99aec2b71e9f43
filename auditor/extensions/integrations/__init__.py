"""Callbacks that audit some steps of a job inside a framework's training loop (docs/python.md).
Each module imports its framework, and only the user imports the module.
"""
