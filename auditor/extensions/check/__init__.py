"""``audit check``: what the source of a file proves by itself."""
