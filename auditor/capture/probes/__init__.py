"""Probes: each watches one kind of thing during some passes and writes rows."""
