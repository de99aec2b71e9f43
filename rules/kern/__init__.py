"""Kernels and launches: idle device, loops of small operators."""
