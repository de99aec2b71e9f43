"""Work whose result is not read."""
