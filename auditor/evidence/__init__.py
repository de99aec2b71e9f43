"""Evidence: typed tables that rules ask for by naming them as parameters. No torch here.

A rule may ask for any :class:`auditor.evidence.table.Table`, one of its own or of a family, and for
the rows of a type (:class:`auditor.evidence.table.Rows`).
"""
