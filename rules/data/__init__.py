"""Loading, and batches on their way to the device."""
