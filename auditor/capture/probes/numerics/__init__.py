"""Probes of numerics: non-finite values, precision, ranges, debugging modes."""
