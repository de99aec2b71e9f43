"""What probes are made of: monkeypatches, dispatch modes, stacks, searches from the user's
variables.
"""
