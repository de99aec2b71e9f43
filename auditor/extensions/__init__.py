"""What is built on an audit and is no part of it: each extension is a folder, found by its name.

The core (all else in auditor, rules and reports) imports none of them. Where it has a place for
one, it asks for it by name.
"""
