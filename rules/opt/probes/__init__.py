"""Probes of OPT rules: they import torch, and only the recording child imports them."""
