"""Recordings: the folder that a run leaves, its schema, and files from elsewhere that are judged
like one.
"""
