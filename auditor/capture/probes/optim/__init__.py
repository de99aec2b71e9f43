"""Probes of optimizers and gradients."""
