"""Probes of the step itself: its times, its trace, whether it trains."""
