"""What probes are made of: monkeypatches, dispatch modes, stacks, object searches."""
