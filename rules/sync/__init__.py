"""Waits of the host for the device, and calls that make it wait."""
