"""Recordings: the folder that a run leaves, its schema, and files that are judged like one."""
