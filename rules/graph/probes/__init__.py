"""Probes of GRAPH rules: they import torch, and only the recording child imports them."""
