"""Work whose result nobody reads."""
