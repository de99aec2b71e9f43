"""Probes of ``audit verify``: what a training computed, and how far it moved."""
