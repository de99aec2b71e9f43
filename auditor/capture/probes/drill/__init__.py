"""Probes of ``audit drill``: a planted fault and what becomes of it."""
