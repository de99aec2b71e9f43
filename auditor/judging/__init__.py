"""Judging: rules asked of a recording, and the report made of their findings."""
