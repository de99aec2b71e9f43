"""``audit check``: what the source of a file proves without a run."""
