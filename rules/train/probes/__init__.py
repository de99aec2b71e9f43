"""Probes of TRAIN rules: they import torch, and only the recording child imports them."""
