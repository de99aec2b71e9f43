"""Settings of models and libraries."""
