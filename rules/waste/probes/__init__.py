"""Probes of the WASTE rules."""
