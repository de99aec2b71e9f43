"""Tables of the user's source and configuration files."""
