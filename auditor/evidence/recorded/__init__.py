"""Tables of what the probes recorded."""
