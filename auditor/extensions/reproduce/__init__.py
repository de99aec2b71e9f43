"""Do two runs of a program give the same results, and where do they part? No torch here."""
