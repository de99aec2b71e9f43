"""Probes of checkpoints: what is loaded and saved."""
