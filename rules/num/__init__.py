"""Numbers: NaN, infinities, lost updates, formulas that lose their range."""
