"""What source and configuration files say, read as data: names, calls, keys."""
