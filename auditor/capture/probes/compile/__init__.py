"""Probes of what ``torch.compile`` does inside the program."""
