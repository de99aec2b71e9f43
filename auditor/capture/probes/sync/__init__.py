"""Probes of what makes the host wait for the device."""
