"""What is built on an audit and is no part of it: each extension is a folder here."""
