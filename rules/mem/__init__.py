"""Memory: growth, peaks, fragments, running out."""
