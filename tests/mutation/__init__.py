"""A mutation run over rules/ and auditor/evidence/, by hand: ``make mutants N=200 SEED=1``.

docs/log/mutants.md says what is changed, what it is tried against and what the figure means.
"""
