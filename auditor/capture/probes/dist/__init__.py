"""Probes of training on several ranks."""
