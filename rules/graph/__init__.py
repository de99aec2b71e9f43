"""Autograd graphs: kept, walked again, not needed; parameters that never train."""
