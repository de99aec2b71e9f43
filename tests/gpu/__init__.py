"""What needs a GPU: recording the CUDA cases, and checks of the probes against the real device."""
