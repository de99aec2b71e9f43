"""Probes of device memory."""
