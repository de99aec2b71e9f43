"""Attacks on what reads files of strangers: corpora, mutators, and the harness behind ``make
fuzz``.
"""
