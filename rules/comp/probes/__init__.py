"""Probes of COMP rules: they import torch, and only the recording child imports them."""
