"""Probes for rules of the family CFG."""
