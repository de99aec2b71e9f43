"""Probes of the autograd graph: what is built, kept and walked."""
