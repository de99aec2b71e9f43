"""Probes of data loading."""
