"""Step times that other rules do not explain."""
