"""Probes of ``audit reproduce``: what each operator of a run gave."""
