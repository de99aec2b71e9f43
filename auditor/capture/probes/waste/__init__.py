"""Probes of work that is thrown away."""
