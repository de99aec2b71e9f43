"""What source alone proves."""
