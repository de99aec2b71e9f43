"""A replay of a trace: the same calls, launches, waits and copies played again on a model of host
threads, launch queues and streams, as they were or with something left out.
"""
